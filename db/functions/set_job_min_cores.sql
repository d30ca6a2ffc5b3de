-- set_job_min_cores: the cores a job is meant to have before others get more. An operator's verb.
-- p_cores: cores, not core points (1.5 is one and a half). Result: pk_job.
-- Errors: QM001 out of range or above its maximum, QM002. Locks: the job_resource row, then the job row.
create or replace function maestro.set_job_min_cores(p_job text, p_cores numeric) returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_job text := maestro.find_job(p_job);
begin
    if p_cores is null or p_cores not between 0 and 10000000 then
        raise exception using
            errcode = 'QM001',
            message = format('minimum cores cannot be %s', coalesce(p_cores::text, 'null')),
            hint = 'Allowed: cores from 0 to 10000000.';
    end if;
    update job_resource set int_min_cores = maestro.core_points(p_cores)
    where pk_job = v_job and not maestro.core_points(p_cores) > int_max_cores;
    if not found then
        raise exception using
            errcode = 'QM001',
            message = format('minimum cores of job %s cannot be %s: above its maximum', p_job, p_cores);
    end if;
    update job set int_min_cores = maestro.core_points(p_cores), ts_updated = now() where pk_job = v_job;
    return v_job;
end
$$;
comment on function maestro.set_job_min_cores(text, numeric) is
    'Sets a job''s minimum cores (cores, not points); returns its pk_job. QM001, QM002.';
