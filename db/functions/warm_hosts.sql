-- warm_hosts: which layers left which of the hosts p_hosts so lately that fewer than p_window frames of other work were
-- booked there since; one row of parallel arrays. Locks nothing.
create or replace function maestro.warm_hosts(p_hosts text [], p_window integer)
returns table (layers text [], hosts text [], foreign_frames integer [])
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select array_agg(w.pk_layer), array_agg(w.pk_host), array_agg((o.frames - w.odometer_at_leave)::integer)
    from maestro.odometer as o
    join maestro.warmth as w on w.pk_host = o.pk_host
    where o.pk_host = any(p_hosts) and o.frames - w.odometer_at_leave < p_window;
$$;
comment on function maestro.warm_hosts(text [], integer) is
    'Layers, the hosts that they left and the frames of other work booked there since (below p_window), as parallel '
    'arrays. Locks nothing.';
