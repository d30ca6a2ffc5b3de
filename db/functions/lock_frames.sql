-- lock_frames: locks what a change of these frames' states touches, in the order everyone keeps.
-- Called before every batch change of frame states. Locks layer_stat, job_stat, frame, each sorted by key.
create or replace function maestro.lock_frames(p_frames text []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
begin
    perform from layer_stat as s
    where s.pk_layer in (select f.pk_layer from frame as f where f.pk_frame = any(p_frames))
    order by s.pk_layer for no key update;
    perform from job_stat as s
    where s.pk_job in (select f.pk_job from frame as f where f.pk_frame = any(p_frames))
    order by s.pk_job for no key update;
    perform from frame where pk_frame = any(p_frames) order by pk_frame for no key update;
end
$$;
comment on function maestro.lock_frames(text []) is
    'Locks layer_stat, job_stat and frame rows of these frames, in this order, each sorted by key.';
