-- eat_frames: frames count as done without having run well. An operator's verb.
-- WAITING, DEPEND, DEAD and CHECKPOINT frames become EATEN at once, RUNNING ones once their killed run has ended (a run
-- that succeeds all the same stays SUCCEEDED); SUCCEEDED ones stay. Layers complete and jobs finish as by completions.
-- Which frames: see pick_frames. Result: {"eaten": n, "killed": n, "finished_jobs": n}. Errors: QM002.
-- Locks: the tick's lock, then proc, launch, layer_stat, job_stat, frame, and as settle.
create or replace function maestro.eat_frames(
    p_job text, p_layer text default null, p_frames integer [] default null, p_states text [] default null,
    p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_frames text [];
    v_killed integer;
    v_eaten text [];
    v_layers text [];
    v_finished integer := 0;
begin
    perform maestro.take_tick_lock();
    v_frames := maestro.pick_frames(p_job, p_layer, p_frames, p_states);
    v_killed := maestro.wish_frames(v_frames, 'EATEN', 'eaten by an operator', p_now);
    perform maestro.lock_frames(v_frames);
    with eaten as (
        update frame as f set
            str_state = 'EATEN', int_exit_status = 506, ts_updated = p_now, int_version = f.int_version + 1
        where f.pk_frame = any(v_frames) and f.str_state in ('WAITING', 'DEPEND', 'DEAD', 'CHECKPOINT')
        returning f.pk_frame, f.pk_layer
    )
    select array_agg(e.pk_frame), array_agg(distinct e.pk_layer) into v_eaten, v_layers from eaten as e;
    if v_eaten is not null then
        v_finished := maestro.settle(maestro.releasing_frames(v_eaten), v_layers, p_now);
    end if;
    return jsonb_build_object(
        'eaten', coalesce(cardinality(v_eaten), 0), 'killed', v_killed, 'finished_jobs', v_finished
    );
end
$$;
comment on function maestro.eat_frames(text, text, integer [], text [], timestamp with time zone) is
    'Eats frames of a job (name or id): {"eaten", "killed", "finished_jobs"}. Layer, numbers and states choose; a job '
    'alone means its dead frames. QM002 for unknown names.';
