-- snapshot: every host that may be booked now (UP and OPEN, busy or idle), in one query.
-- The tick's phase 3. One row of parallel arrays, as candidates. Ordered by name, so that ties in the plan are settled
-- the same way every time. Locks nothing.
-- refused: its RQD refused frames of so many core points and more, and has reported nothing new since; 0: none.
-- short_mem: the host reports less free memory than host_min_free_mem, whatever the books say is idle.
create or replace function maestro.snapshot()
returns table (
    pk_host text [],
    str_name text [],
    pk_alloc text [],
    pk_facility text [],
    str_tags text [],
    str_os text [],
    int_thread_mode integer [],
    int_cores bigint [],
    int_mem bigint [],
    int_gpus bigint [],
    int_gpu_mem bigint [],
    int_cores_idle bigint [],
    int_mem_idle bigint [],
    int_gpus_idle bigint [],
    int_gpu_mem_idle bigint [],
    short_mem boolean [],
    refused integer []
)
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select
        array_agg(s.pk_host::text), array_agg(s.str_name::text), array_agg(s.pk_alloc::text),
        array_agg(s.pk_facility::text), array_agg(s.str_tags::text), array_agg(s.str_os::text),
        array_agg(s.int_thread_mode), array_agg(s.int_cores), array_agg(s.int_mem), array_agg(s.int_gpus),
        array_agg(s.int_gpu_mem), array_agg(s.int_cores_idle), array_agg(s.int_mem_idle),
        array_agg(s.int_gpus_idle), array_agg(s.int_gpu_mem_idle), array_agg(s.short_mem), array_agg(s.refused)
    from (
        select
            h.pk_host, h.str_name, h.pk_alloc, a.pk_facility, coalesce(h.str_tags, '') as str_tags, hs.str_os,
            h.int_thread_mode, h.int_cores, h.int_mem, h.int_gpus, h.int_gpu_mem,
            h.int_cores_idle, h.int_mem_idle, h.int_gpus_idle, h.int_gpu_mem_idle,
            hs.int_mem_total > 0 and hs.int_mem_free < (select maestro.setting('host_min_free_mem')::bigint)
                as short_mem,
            coalesce(r.cores, 0) as refused
        from host as h
        join host_stat as hs on hs.pk_host = h.pk_host
        join alloc as a on a.pk_alloc = h.pk_alloc
        left join (
            select f.pk_host, f.cores
            from maestro.host_refusal as f
            left join maestro.host_mark as m on m.pk_host = f.pk_host
            where f.mark is not distinct from m.mark
        ) as r on r.pk_host = h.pk_host
        where h.str_lock_state = 'OPEN' and hs.str_state = 'UP'
        order by h.str_name collate "C"
    ) as s;
end
$$;
comment on function maestro.snapshot() is
    'Bookable hosts with totals and idle amounts (core points, KiB, gpus), ordered by name: one row of arrays. Locks '
    'nothing.';
