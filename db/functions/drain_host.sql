-- drain_host: empties a host and has its RQD restart. An operator's verb.
-- The host is locked at once (a lock of a person's stays in force after the drain), launches that no launcher has taken
-- are undone, running frames end in their own time; then the sweep orders the restart, and the boot report that
-- follows opens the host. Draining twice changes the reason.
-- Result: pk_host. Errors: QM002. Locks: the tick's lock, the host row, then as take_back.
create or replace function maestro.drain_host(str_name text, reason text default 'drained by an operator') returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_host text;
begin
    perform maestro.take_tick_lock();
    v_host := maestro.find_host($1);
    update host as h set
        str_lock_source = case when h.str_lock_state = 'LOCKED' then h.str_lock_source else 'maestro.drain_host' end,
        str_lock_state = 'LOCKED'
    where h.pk_host = v_host;
    insert into maestro.host_drain as d (pk_host, reason)
    values (v_host, left(coalesce($2, 'drained by an operator'), 500))
    on conflict (pk_host) do update set reason = excluded.reason;
    perform maestro.recall_launches(array[v_host], now());
    return v_host;
end
$$;
comment on function maestro.drain_host(text, text) is
    'Stops bookings on a host (name or id), lets its frames end, then has its RQD restart; returns its pk_host. QM002.';
