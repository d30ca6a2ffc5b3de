-- state_drift: layers of p_layers whose counters do not say what their frames say, with what would be right.
-- Called by repair_states. Frames in SETUP are in no counter. Locks nothing.
create or replace function maestro.state_drift(p_layers text [])
returns table (
    pk_layer text, total bigint, waiting bigint, running bigint, dead bigint, depend bigint, eaten bigint,
    succeeded bigint, checkpoint bigint
)
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select s.pk_layer::text, c.*
    from layer_stat as s
    cross join lateral (
        select
            count(*) as total,
            count(*) filter (where f.str_state = 'WAITING') as waiting,
            count(*) filter (where f.str_state = 'RUNNING') as running,
            count(*) filter (where f.str_state = 'DEAD') as dead,
            count(*) filter (where f.str_state = 'DEPEND') as depend,
            count(*) filter (where f.str_state = 'EATEN') as eaten,
            count(*) filter (where f.str_state = 'SUCCEEDED') as succeeded,
            count(*) filter (where f.str_state = 'CHECKPOINT') as checkpoint
        from frame as f where f.pk_layer = s.pk_layer and f.str_state <> 'SETUP'
    ) as c
    where s.pk_layer = any(p_layers)
        and (c.total, c.waiting, c.running, c.dead, c.depend, c.eaten, c.succeeded, c.checkpoint)
        is distinct from (
            s.int_total_count, s.int_waiting_count, s.int_running_count, s.int_dead_count, s.int_depend_count,
            s.int_eaten_count, s.int_succeeded_count, s.int_checkpoint_count
        );
$$;
comment on function maestro.state_drift(text []) is
    'Those of p_layers whose layer_stat does not agree with their frames, and the right counts. Locks nothing.';
