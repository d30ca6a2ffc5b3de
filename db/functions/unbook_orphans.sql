-- unbook_orphans: unbooks procs of hosts that live but do not run them (301), and has them killed should they run yet.
-- Called by the sweep. Each is written to maestro.fault. Locks: lock_orders, then as unbook. Result: procs released.
create or replace function maestro.unbook_orphans(p_procs text [], p_reason text, p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    if coalesce(cardinality(p_procs), 0) = 0 then
        return 0;
    end if;
    perform maestro.lock_orders(true);
    insert into maestro.host_order (kind, pk_host, pk_proc, pk_frame, reason)
    select 'kill', p.pk_host, p.pk_proc, p.pk_frame, 'orphan: ' || p_reason
    from proc as p where p.pk_proc = any(p_procs) and p.pk_frame is not null
    on conflict do nothing;
    insert into maestro.fault (at, kind, detail)
    select
        p_now, 'orphan proc',
        jsonb_build_object(
            'pk_proc', p.pk_proc, 'pk_frame', p.pk_frame, 'pk_host', p.pk_host, 'ts_ping', p.ts_ping,
            'reason', p_reason
        )
    from proc as p where p.pk_proc = any(p_procs);
    perform pg_notify('maestro_order', '');
    return maestro.unbook(p_procs, 301, p_now);
end
$$;
comment on function maestro.unbook_orphans(text [], text, timestamp with time zone) is
    'Unbooks procs with 301, orders the kill of what might still run, and writes a fault a proc; returns how many.';
