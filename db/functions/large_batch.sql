-- large_batch: bookings from which on a commit goes without the row-by-row checks of foreign keys.
-- They cost 10 us a booking, and as much again after a drain; making the session's plans anew costs some 30 ms.
create or replace function maestro.large_batch() returns integer
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select 1000;
$$;
comment on function maestro.large_batch() is 'Bookings from which on commit_plan skips the foreign-key checks.';
