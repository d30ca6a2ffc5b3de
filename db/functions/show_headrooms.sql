-- show_headrooms: core points that each show may still book in each allocation, up to its burst. Locks nothing.
create or replace function maestro.show_headrooms()
returns table (pk_show text, pk_alloc text, cores_free bigint)
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select s.pk_show, s.pk_alloc, s.int_burst - s.int_cores from subscription as s where s.int_burst > s.int_cores;
$$;
comment on function maestro.show_headrooms() is
    'Core points up to the burst, per show and allocation; shows without any are absent. Locks nothing.';
