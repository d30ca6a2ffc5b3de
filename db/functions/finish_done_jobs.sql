-- finish_done_jobs: finishes PENDING jobs of which nothing is left to do, although no completion said so.
-- Part of the sweep, every tick. A healthy farm has none: each is written to maestro.fault.
-- Locks as finish_jobs and satisfy_depends. Result: jobs finished.
create or replace function maestro.finish_done_jobs(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_jobs text [];
begin
    v_jobs := array(
        select j.pk_job
        from job as j
        join job_stat as s on s.pk_job = j.pk_job
        where j.str_state <> 'FINISHED' and j.str_state = 'PENDING'
            and s.int_waiting_count = 0 and s.int_running_count = 0 and s.int_dead_count = 0
            and s.int_depend_count = 0 and s.int_checkpoint_count = 0
            and s.int_succeeded_count + s.int_eaten_count > 0
        limit 1000
    );
    if cardinality(v_jobs) = 0 then
        return 0;
    end if;
    v_jobs := maestro.finish_jobs(v_jobs, p_now);
    perform maestro.satisfy_depends(
        null, array(select l.pk_layer from layer as l where l.pk_job = any(v_jobs)), v_jobs, p_now
    );
    insert into maestro.fault (at, kind, detail)
    select p_now, 'job left open', jsonb_build_object('pk_job', j.pk_job) from unnest(v_jobs) as j (pk_job);
    return cardinality(v_jobs);
end
$$;
comment on function maestro.finish_done_jobs(timestamp with time zone) is
    'Finishes jobs whose frames are all SUCCEEDED or EATEN but which are still PENDING; returns how many.';
