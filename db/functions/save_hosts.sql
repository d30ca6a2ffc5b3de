-- save_hosts: what reports say about the hosts themselves. Unknown hosts are created.
-- Called by report_startup (p_boot) and report_status, under their rules for locks.
--
-- host_stat takes over memory, load and the time of the report (ts_ping).
-- Hardware state: DOWN becomes UP with any report; REBOOTING and REBOOT_WHEN_IDLE with a boot report alone; REPAIR
-- never; else the reported state.
-- A full temporary disk makes it REPAIR (check_temp_space).
-- Lock: OPEN and NIMBY_LOCKED follow the report; LOCKED is a person's and stays. A boot report ends a drain whose
-- restart was ordered.
-- Capacity follows the report while nothing is booked on the host (idle = total, which a booking that commits at this
-- moment falsifies in the locked row itself).
-- Host rows that the tick holds are left to the next report, except at boot, which is reported once.
-- Locks: host_stat sorted by key, then host rows.
create or replace function maestro.save_hosts(
    p_hosts maestro.host_report [], p_boot boolean, p_now timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_new maestro.host_report [];
    v_held text [];
begin
    select array_agg(r) into v_new
    from unnest(p_hosts) as r where not exists (select from host as h where h.str_name = r.name);
    if v_new is not null then
        perform maestro.create_hosts(v_new, p_now);
    end if;

    with held as materialized (
        select s.pk_host, r as report
        from unnest(p_hosts) as r
        join host as h on h.str_name = r.name
        join host_stat as s on s.pk_host = h.pk_host
        order by s.pk_host
        for no key update of s
    )
    update host_stat as s set
        int_mem_total = (k.report).total_mem,
        int_mem_free = (k.report).free_mem,
        int_swap_total = (k.report).total_swap,
        int_swap_free = (k.report).free_swap,
        int_mcp_total = (k.report).total_mcp,
        int_mcp_free = (k.report).free_mcp,
        int_gpu_mem_total = (k.report).total_gpu_mem,
        int_gpu_mem_free = (k.report).free_gpu_mem,
        int_load = (k.report).load,
        ts_booted = coalesce((k.report).booted_at, s.ts_booted),
        ts_ping = p_now,
        str_os = (k.report).os,
        str_state = case
            when s.str_state = 'REPAIR' then 'REPAIR'
            when s.str_state = 'DOWN' then 'UP'
            when s.str_state in ('REBOOTING', 'REBOOT_WHEN_IDLE') then case when p_boot then 'UP' else s.str_state end
            else (k.report).state
        end
    from held as k
    where s.pk_host = k.pk_host;
    perform maestro.check_temp_space(p_hosts, p_now);

    if p_boot then
        v_held := array(
            select h.pk_host
            from unnest(p_hosts) as r join host as h on h.str_name = r.name
            order by h.pk_host for no key update of h
        );
        insert into maestro.host_boot (pk_host, booted_at)
        select b.pk_host, p_now
        from unnest(v_held) as b (pk_host) where exists (select from proc as p where p.pk_host = b.pk_host)
        on conflict (pk_host) do update set booted_at = excluded.booted_at;
        perform maestro.tag_hardware(p_hosts);
        perform maestro.end_drains(array(
            select d.pk_host from maestro.host_drain as d where d.pk_host = any(v_held) and d.state = 'restarting'
        ));
    else
        v_held := array(
            select h.pk_host
            from unnest(p_hosts) as r
            join host as h on h.str_name = r.name
            cross join lateral (
                select maestro.bookable_mem(r.total_mem, '64bit' = any(r.tags), r.nimby_enabled) as mem
            ) as m
            where h.str_lock_state = case when r.nimby_locked then 'OPEN' else 'NIMBY_LOCKED' end
                or r.cores > 0 and r.total_mem > 0
                and (h.int_cores, h.int_mem, h.int_gpus, h.int_gpu_mem)
                is distinct from (r.cores, m.mem, r.gpus, r.total_gpu_mem)
            order by h.pk_host
            for no key update of h skip locked
        );
    end if;

    if cardinality(v_held) > 0 then
        update host as h set str_lock_state = case when r.nimby_locked then 'NIMBY_LOCKED' else 'OPEN' end
        from unnest(p_hosts) as r
        where h.str_name = r.name and h.pk_host = any(v_held)
            and h.str_lock_state = case when r.nimby_locked then 'OPEN' else 'NIMBY_LOCKED' end;

        update host as h set
            b_nimby = r.nimby_enabled,
            int_cores = r.cores, int_cores_idle = r.cores,
            int_mem = m.mem, int_mem_idle = m.mem,
            int_gpus = r.gpus, int_gpus_idle = r.gpus,
            int_gpu_mem = r.total_gpu_mem, int_gpu_mem_idle = r.total_gpu_mem
        from unnest(p_hosts) as r
        cross join lateral (
            select maestro.bookable_mem(r.total_mem, '64bit' = any(r.tags), r.nimby_enabled) as mem
        ) as m
        where h.str_name = r.name and h.pk_host = any(v_held) and r.cores > 0 and r.total_mem > 0
            and (h.int_cores, h.int_mem, h.int_gpus, h.int_gpu_mem, h.b_nimby)
            is distinct from (r.cores, m.mem, r.gpus, r.total_gpu_mem, r.nimby_enabled)
            and h.int_cores_idle = h.int_cores and h.int_mem_idle = h.int_mem
            and h.int_gpus_idle = h.int_gpus and h.int_gpu_mem_idle = h.int_gpu_mem
            and not exists (select from proc as p where p.pk_host = h.pk_host);
    end if;
end
$$;
comment on function maestro.save_hosts(maestro.host_report [], boolean, timestamp with time zone) is
    'Creates unknown hosts and takes over what known ones report about themselves; p_boot for boot reports.';
