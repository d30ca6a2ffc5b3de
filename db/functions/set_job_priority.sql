-- set_job_priority: the job's rate in the lottery, from the next tick on. An operator's verb.
-- Result: pk_job. Errors: QM001 priority out of range, QM002. Locks: the job_resource row.
create or replace function maestro.set_job_priority(p_job text, p_priority integer) returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_job text := maestro.find_job(p_job);
begin
    if p_priority is null or p_priority not between 0 and 1000000 then
        raise exception using
            errcode = 'QM001',
            message = format('priority cannot be %s', coalesce(p_priority::text, 'null')),
            hint = 'Allowed: a whole number from 0 to 1000000; 0 counts as 1.';
    end if;
    update job_resource set int_priority = p_priority where pk_job = v_job;
    return v_job;
end
$$;
comment on function maestro.set_job_priority(text, integer) is
    'Sets a job''s priority (0 to 1000000); returns its pk_job. QM001, QM002.';
