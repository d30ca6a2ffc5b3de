-- lock_states: locks the counters that a change of frame states writes, in the order everyone keeps.
-- Called before every batch change of frame states, by whoever knows the layers and jobs already; see lock_frames.
-- Locks layer_stat, then job_stat, each sorted by key.
create or replace function maestro.lock_states(p_layers text [], p_jobs text []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
begin
    perform from layer_stat where pk_layer = any(p_layers) order by pk_layer for no key update;
    perform from job_stat where pk_job = any(p_jobs) order by pk_job for no key update;
end
$$;
comment on function maestro.lock_states(text [], text []) is
    'Locks layer_stat rows of these layers, then job_stat rows of these jobs, each sorted by key.';
