-- mark_done: eats frames and releases whatever waits for them, whatever depend_satisfy_only_on_frame_success says.
-- An operator's verb. Which frames: see pick_frames. Result: as eat_frames, with "depends" satisfied. Errors: QM002.
-- Locks: as eat_frames.
create or replace function maestro.mark_done(
    p_job text, p_layer text default null, p_frames integer [] default null, p_states text [] default null,
    p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_frames text [];
    v_answer jsonb;
    v_depends integer;
begin
    perform maestro.take_tick_lock();
    v_frames := maestro.pick_frames(p_job, p_layer, p_frames, p_states);
    -- Before the eating, which may finish the job.
    v_depends := maestro.satisfy_depends(v_frames, null, null, p_now);
    v_answer := maestro.eat_frames(p_job, p_layer, p_frames, p_states, p_now);
    return v_answer || jsonb_build_object('depends', v_depends);
end
$$;
comment on function maestro.mark_done(text, text, integer [], text [], timestamp with time zone) is
    'Eats frames and satisfies the depends on them: {"eaten", "killed", "finished_jobs", "depends"}. QM002 for unknown '
    'names.';
