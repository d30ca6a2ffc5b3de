-- end_hung_tick: cancels the statement of a session that holds the tick's lock for longer than tick_hang_seconds and
-- only sleeps. Called by ticks that find the lock taken, and with each launcher's heartbeat. A session that works is
-- left alone, however long. Waits for rows end by themselves (guard_tick_lock). Result: sessions cancelled. Locks
-- nothing.
create or replace function maestro.end_hung_tick() returns integer
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select count(pg_cancel_backend(a.pid))::integer
    from pg_locks as l
    join pg_stat_activity as a on a.pid = l.pid
    -- The bytes of "Maestro", as take_tick_lock and maestro_tick have them.
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
        and l.classid::bigint = x'4d61657374726f'::bigint >> 32
        and l.objid::bigint = x'4d61657374726f'::bigint & 4294967295
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
        and a.state = 'active' and a.wait_event_type = 'Timeout' and a.wait_event = 'PgSleep'
        and a.xact_start < clock_timestamp() - make_interval(secs => maestro.setting('tick_hang_seconds')::integer);
$$;
comment on function maestro.end_hung_tick() is
    'Cancels a session that holds the tick''s lock and sleeps for longer than tick_hang_seconds; returns how many.';
