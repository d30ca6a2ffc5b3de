-- warm_layers: which of the hosts p_hosts the layers p_layers left so lately that fewer than p_window frames of other
-- work were booked there since; a row a layer with parallel arrays. Locks nothing.
create or replace function maestro.warm_layers(p_hosts text [], p_layers text [], p_window integer)
returns table (pk_layer text, hosts text [], foreign_frames integer [])
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select w.pk_layer, array_agg(w.pk_host), array_agg((o.frames - w.odometer_at_leave)::integer)
    from maestro.warmth as w
    join maestro.odometer as o on o.pk_host = w.pk_host
    join unnest(p_layers) as l (pk_layer) on l.pk_layer = w.pk_layer
    where w.pk_host = any(p_hosts) and o.frames - w.odometer_at_leave < p_window
    group by w.pk_layer;
$$;
comment on function maestro.warm_layers(text [], text [], integer) is
    'Hosts that layers left, with the frames of other work booked there since (below p_window). Locks nothing.';
