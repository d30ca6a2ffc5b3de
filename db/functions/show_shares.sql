-- show_shares: what each show may use and uses of each allocation, in core points. Shows whose burst is 0 are absent.
-- The tick's phase 5. Locks nothing.
create or replace function maestro.show_shares()
returns table (pk_show text, pk_alloc text, size bigint, burst bigint, cores bigint)
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select s.pk_show, s.pk_alloc, s.int_size, s.int_burst, s.int_cores::bigint
    from subscription as s where s.int_burst > 0;
$$;
comment on function maestro.show_shares() is
    'Size, burst and running cores (core points) of each show in each allocation. Locks nothing.';
