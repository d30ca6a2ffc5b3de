-- take_tick_lock: waits until no tick plans, and keeps ticks out until the transaction ends.
-- Called first by everything outside the tick that locks rows of several tables the tick writes (operator verbs,
-- unbook): a tick takes those tables twice, in its drain and in its commit, so their order alone cannot rule out a
-- deadlock with it. Inside a tick the call is free. It must come before any row lock of the caller's own.
-- Locks: the tick's advisory lock (transaction level). Errors: none; but see guard_tick_lock for what follows.
create or replace function maestro.take_tick_lock() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The bytes of "Maestro"; public.maestro_tick tries the same key.
    perform pg_advisory_xact_lock(x'4d61657374726f'::bigint);
    perform maestro.guard_tick_lock();
end
$$;
comment on function maestro.take_tick_lock() is
    'Waits for a running tick and keeps ticks out until the transaction ends. Take it before any row lock.';
