-- retry_frames: frames run again. An operator's verb.
-- Frames that are done or dead go to WAITING (DEPEND while they wait for others) at once. RUNNING ones are killed first
-- and stay RUNNING until their run has ended (see take_back). WAITING and DEPEND frames are left alone.
-- A finished job lives again, with its name if that is free. Which frames: see pick_frames.
-- Result: {"retried": frames that wait now, "killed": runs being killed}. Errors: QM002.
-- Locks: the tick's lock, then proc, launch, layer_stat, job_stat, frame, job.
create or replace function maestro.retry_frames(
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
    v_retried integer;
begin
    perform maestro.take_tick_lock();
    v_frames := maestro.pick_frames(p_job, p_layer, p_frames, p_states);
    v_killed := maestro.wish_frames(v_frames, 'WAITING', 'retried by an operator', p_now);
    perform maestro.lock_frames(v_frames);
    update frame as f set str_state = 'WAITING', ts_updated = p_now, ts_eligible = p_now, int_version = f.int_version + 1
    where f.pk_frame = any(v_frames) and f.str_state in ('SUCCEEDED', 'DEAD', 'EATEN', 'CHECKPOINT');
    get diagnostics v_retried = row_count;
    if v_retried > 0 then
        update job as j set
            str_state = 'PENDING', ts_stopped = null, ts_updated = p_now,
            str_visible_name = case
                when not exists (select from job as o where o.str_visible_name = j.str_name) then j.str_name
            end
        where j.pk_job = maestro.find_job(p_job) and j.str_state = 'FINISHED';
    end if;
    return jsonb_build_object('retried', v_retried, 'killed', v_killed);
end
$$;
comment on function maestro.retry_frames(text, text, integer [], text [], timestamp with time zone) is
    'Runs frames of a job (name or id) again: {"retried", "killed"}. Layer, numbers and states choose; a job alone means '
    'its dead frames. A RUNNING frame waits until its killed run has ended. QM002 for unknown names.';
