-- lock_frames: locks what a change of these frames' states touches, in the order everyone keeps.
-- Called before a batch change of frame states. Locks layer_stat, job_stat, frame, each sorted by key.
create or replace function maestro.lock_frames(p_frames text []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_layers text [];
    v_jobs text [];
begin
    select array_agg(distinct f.pk_layer), array_agg(distinct f.pk_job) into v_layers, v_jobs
    from frame as f where f.pk_frame = any(p_frames);
    perform maestro.lock_states(v_layers, v_jobs);
    perform from frame where pk_frame = any(p_frames) order by pk_frame for no key update;
end
$$;
comment on function maestro.lock_frames(text []) is
    'Locks layer_stat, job_stat and frame rows of these frames, in this order, each sorted by key.';
