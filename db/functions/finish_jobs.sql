-- finish_jobs: ends jobs: FINISHED, the visible name free again, post jobs started.
-- Called by settle and kill_job. Only jobs that are PENDING end. Depends on the jobs are the caller's to satisfy.
-- Locks: job rows, sorted by key. Result: the jobs that ended here.
create or replace function maestro.finish_jobs(p_jobs text [], p_now timestamptz) returns text []
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_jobs text [];
begin
    if coalesce(cardinality(p_jobs), 0) = 0 then
        return '{}';
    end if;
    perform from job where pk_job = any(p_jobs) order by pk_job for update;
    with ended as (
        update job set str_state = 'FINISHED', str_visible_name = null, ts_stopped = p_now, ts_updated = p_now
        where pk_job = any(p_jobs) and str_state = 'PENDING'
        returning pk_job
    )
    select coalesce(array_agg(e.pk_job), '{}') into v_jobs from ended as e;

    -- However the job ended, its post jobs run: they clean up after it.
    update job set str_state = 'PENDING', ts_updated = p_now
    where str_state = 'POSTED'
        and pk_job in (select p.pk_post_job from job_post as p where p.pk_job = any(v_jobs));
    delete from job_post where pk_job = any(v_jobs);
    return v_jobs;
end
$$;
comment on function maestro.finish_jobs(text [], timestamp with time zone) is
    'Puts PENDING jobs to FINISHED, frees their visible names and starts their post jobs; returns those that ended.';
