-- recall_launches: undoes bookings on these hosts whose launch no launcher has taken yet. No retry is spent.
-- Called by lock_host, drain_host and, for hosts that closed by themselves, by the sweep, under take_tick_lock.
-- Locks: launch rows with skip locked, then as unbook. Result: bookings undone.
create or replace function maestro.recall_launches(p_hosts text [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_procs text [];
begin
    if coalesce(cardinality(p_hosts), 0) = 0 then
        return 0;
    end if;
    with picked as (
        select l.launch_id
        from maestro.launch as l
        where l.pk_host = any(p_hosts) and l.state = 'ready'
        for update skip locked
    ),
    undone as (
        delete from maestro.launch as l using picked as k where l.launch_id = k.launch_id returning l.pk_proc
    )
    select array_agg(u.pk_proc) into v_procs from undone as u;
    return maestro.unbook(v_procs, 299, p_now);
end
$$;
comment on function maestro.recall_launches(text [], timestamp with time zone) is
    'Undoes the bookings on these hosts whose launch nobody has taken yet; returns how many.';
