-- guard_tick_lock: who holds the tick's lock must not hold up the farm. Called by whoever has just got it.
-- For the rest of the transaction: an idle client is disconnected after ten seconds, and a wait for a row fails after
-- tick_hang_seconds. What else may hang, others end (end_hung_tick). Locks nothing.
create or replace function maestro.guard_tick_lock() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('idle_in_transaction_session_timeout', '10s', true);
    perform set_config('lock_timeout', maestro.setting('tick_hang_seconds') || 's', true);
end
$$;
comment on function maestro.guard_tick_lock() is
    'Bounds idle time and waits for rows of the transaction that holds the tick''s lock.';
