-- take_back: ends runs that an operator does not want. Kill before free: the frame stays RUNNING and its proc stays
-- booked until the run's completion arrives or the host shows that it is gone, so that no frame ever runs twice.
-- A launch that no launcher has taken yet is undone at once instead.
-- Called by the verbs under take_tick_lock, after wishes were written. Locks: launch rows with skip locked (a launcher
-- that holds one may wait for the tick's lock), then as unbook, then lock_orders. Result: runs that are being killed.
create or replace function maestro.take_back(p_procs text [], p_reason text, p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_unsent text [];
    v_orders integer;
begin
    with picked as (
        select l.launch_id
        from maestro.launch as l
        where l.pk_proc = any(p_procs) and l.state = 'ready'
        for update skip locked
    ),
    undone as (
        delete from maestro.launch as l using picked as k where l.launch_id = k.launch_id returning l.pk_proc
    )
    select array_agg(u.pk_proc) into v_unsent from undone as u;
    perform maestro.unbook(v_unsent, 299, p_now);

    perform maestro.lock_orders(true);
    insert into maestro.host_order (kind, pk_host, pk_proc, pk_frame, reason)
    select 'kill', p.pk_host, p.pk_proc, p.pk_frame, p_reason
    from proc as p
    where p.pk_proc = any(p_procs) and p.pk_frame is not null
    order by p.pk_proc
    on conflict do nothing;
    get diagnostics v_orders = row_count;
    if v_orders > 0 then
        perform pg_notify('maestro_order', '');
    end if;
    return v_orders;
end
$$;
comment on function maestro.take_back(text [], text, timestamp with time zone) is
    'Undoes unsent launches of these procs and orders the kill of the others; returns the number of kills ordered.';
