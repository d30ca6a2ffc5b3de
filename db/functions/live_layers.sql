-- live_layers: which of the layers p_layers run on which of the hosts p_hosts, a row a layer with parallel arrays.
-- The tick asks for waiting layers and hosts with room for them. Locks nothing.
create or replace function maestro.live_layers(p_hosts text [], p_layers text [])
returns table (pk_layer text, hosts text [], frames integer [])
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select g.pk_layer, array_agg(g.pk_host), array_agg(g.frames)
    from (
        select p.pk_layer, p.pk_host, count(*)::integer as frames
        from proc as p
        where p.pk_host = any(p_hosts)
        group by p.pk_layer, p.pk_host
    ) as g
    join unnest(p_layers) as l (pk_layer) on l.pk_layer = g.pk_layer
    group by g.pk_layer;
$$;
comment on function maestro.live_layers(text [], text []) is
    'Procs of the given layers on the given hosts: a row a layer with hosts and numbers of procs. Locks nothing.';
