-- create_hosts: makes the hosts that reported for the first time, from what they say about themselves.
-- Called by save_hosts. Allocation: of the reported tags in order the first for which <facility>.<tag> is one, else the
-- default. Tags: the allocation's, the host's name, and hardware tags. Two callers may meet: the second adds nothing.
-- Locks: none but the new rows. Errors: QM003 when there is no default allocation, QM001 when a new host reports
-- no cores or no memory.
create or replace function maestro.create_hosts(p_hosts maestro.host_report [], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_bad text;
begin
    select r.name into v_bad from unnest(p_hosts) as r where r.cores < 10 or r.total_mem = 0 limit 1;
    if found then
        raise exception using
            errcode = 'QM001',
            message = format('first report of host %s without cores or memory', v_bad),
            hint = 'num_procs, cores_per_proc (core points) and total_mem (KiB) must be above 0.';
    end if;
    if not exists (select from alloc where b_default) then
        raise exception using
            errcode = 'QM003',
            message = 'no default allocation, so new hosts have no place',
            hint = 'Set b_default of one row of alloc.';
    end if;

    with made as (
        insert into host (
            pk_host, pk_alloc, str_name, str_lock_state, b_nimby, int_procs, int_thread_mode, str_fqdn,
            int_cores, int_cores_idle, int_mem, int_mem_idle, int_gpus, int_gpus_idle, int_gpu_mem, int_gpu_mem_idle
        )
        select
            gen_random_uuid()::text, a.pk_alloc, r.name, case when r.nimby_locked then 'NIMBY_LOCKED' else 'OPEN' end,
            r.nimby_enabled, r.num_procs, r.nimby_enabled::integer, r.fqdn,
            r.cores, r.cores, m.mem, m.mem, r.gpus, r.gpus, r.total_gpu_mem, r.total_gpu_mem
        from unnest(p_hosts) as r
        cross join lateral (
            select a.pk_alloc
            from alloc as a
            left join unnest(r.tags) with ordinality as t (tag, place) on a.str_name = r.facility || '.' || t.tag
            where t.tag is not null or a.b_default
            order by t.place nulls last
            limit 1
        ) as a
        cross join lateral (select maestro.bookable_mem(r.total_mem, '64bit' = any(r.tags), r.nimby_enabled)) as m (mem)
        order by r.name
        on conflict do nothing
        returning pk_host, pk_alloc, str_name
    ),
    stated as (
        insert into host_stat (pk_host_stat, pk_host, ts_ping)
        select m.pk_host, m.pk_host, p_now from made as m
    )
    insert into host_tag (pk_host_tag, pk_host, str_tag, str_tag_type, b_constant)
    select gen_random_uuid()::text, m.pk_host, t.tag, t.kind, t.kind = 'ALLOC'
    from made as m
    join alloc as a on a.pk_alloc = m.pk_alloc
    cross join lateral (values (a.str_tag, 'ALLOC'), (m.str_name, 'HOSTNAME')) as t (tag, kind)
    where t.tag is not null;

    perform maestro.tag_hardware(p_hosts);
end
$$;
comment on function maestro.create_hosts(maestro.host_report [], timestamp with time zone) is
    'Creates host, host_stat and host_tag rows for hosts that are not known yet; whoever comes second adds nothing.';
