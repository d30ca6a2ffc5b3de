-- settle: what follows from frames that are done: depends are satisfied, layers complete, jobs finish.
-- Called by drain, unbook, eat verbs and the sweep after frames went to SUCCEEDED or EATEN, inside the tick or under
-- take_tick_lock.
--
-- p_frames: frames that satisfy depends on themselves (see releasing_frames). p_layers: layers to be tested for
-- completion, and their jobs with them. A layer is complete when no frame of it waits, runs, depends, is dead or
-- checkpointed; how many were eaten does not matter, so an eaten last frame blocks nobody.
-- Locks, after those of the caller: job, then depend, then frames that wait for something here.
-- Result: jobs finished.
create or replace function maestro.settle(p_frames text [], p_layers text [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_layers text [];
    v_jobs text [];
begin
    v_layers := array(
        select s.pk_layer
        from layer_stat as s
        join job as j on j.pk_job = s.pk_job
        where s.pk_layer = any(p_layers) and j.str_state <> 'STARTUP'
            and s.int_waiting_count = 0 and s.int_running_count = 0 and s.int_dead_count = 0
            and s.int_depend_count = 0 and s.int_checkpoint_count = 0
    );
    -- Only the end of a layer can be the end of its job.
    if cardinality(v_layers) > 0 then
        v_jobs := array(
            select j.pk_job
            from job as j
            join job_stat as s on s.pk_job = j.pk_job
            where j.pk_job in (select l.pk_job from layer as l where l.pk_layer = any(v_layers))
                and j.str_state = 'PENDING'
                and s.int_waiting_count = 0 and s.int_running_count = 0 and s.int_dead_count = 0
                and s.int_depend_count = 0 and s.int_checkpoint_count = 0
        );
        v_jobs := maestro.finish_jobs(v_jobs, p_now);
    end if;
    perform maestro.satisfy_depends(p_frames, v_layers, v_jobs, p_now);
    return coalesce(cardinality(v_jobs), 0);
end
$$;
comment on function maestro.settle(text [], text [], timestamp with time zone) is
    'Satisfies depends on the frames p_frames and on those layers of p_layers that are complete, and finishes jobs '
    'whose frames are all done; returns the number of jobs finished.';
