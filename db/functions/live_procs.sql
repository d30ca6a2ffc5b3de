-- live_procs: what runs on the hosts p_hosts: one row of parallel arrays, an element a proc. Locks nothing.
-- The tick asks for hosts with room. Plain arrays, since grouping thousands of keys costs more than counting them
-- later.
create or replace function maestro.live_procs(p_hosts text []) returns table (layers text [], hosts text [])
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
    select array_agg(p.pk_layer::text), array_agg(p.pk_host::text) from proc as p where p.pk_host = any(p_hosts);
$$;
comment on function maestro.live_procs(text []) is
    'Layers and hosts of the procs on the given hosts, as two parallel arrays (null if there are none). Locks nothing.';
