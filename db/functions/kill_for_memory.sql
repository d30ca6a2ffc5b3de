-- kill_for_memory: orders the death of frames that use more memory than is reserved for them, to save their host or
-- because they are far over. Each counts as a memory failure however it ends (memory_kill): no retry is spent, and it
-- asks for more at its next run.
-- Called by report_status with the reports' hosts and those of their runs whose procs it has locked. Hosts of people
-- (b_nimby) are left alone.
--
-- Host in need: its memory and its swap are both fuller than the oom_max_safe_used_… settings allow. Of the frames
-- over their reservation those that use most swap are killed, at most five, no more than bring either back under.
-- Frames within their reservation are never killed for it.
-- Else far over: rss is at least (1 + t) times the reservation, or its peak (1 + 2t) times and rss 0.9 of the peak; t
-- is oom_frame_overboard_allowed_threshold, below 0 it is off.
-- Locks: lock_orders, without waiting: nobody is killed while a tick or a person orders kills; then the new rows.
-- Result: the procs that are to die.
create or replace function maestro.kill_for_memory(
    p_hosts maestro.host_report [], p_runs maestro.run_report [], p_now timestamptz
) returns text []
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_physical constant double precision
        := maestro.setting('oom_max_safe_used_physical_memory_threshold')::double precision;
    v_swap constant double precision := maestro.setting('oom_max_safe_used_swap_memory_threshold')::double precision;
    v_overboard constant double precision
        := maestro.setting('oom_frame_overboard_allowed_threshold')::double precision;
    v_victims_max constant integer := 5;
    v_procs text [];
begin
    if not maestro.lock_orders(false) then
        return '{}';
    end if;
    with needy as (
        select
            r.name,
            (r.total_mem - r.free_mem) - v_physical * r.total_mem as mem_excess,
            (r.total_swap - r.free_swap) - v_swap * r.total_swap as swap_excess
        from unnest(p_hosts) as r
        where r.total_mem > 0 and r.total_swap > 0
            and r.total_mem - r.free_mem > v_physical * r.total_mem
            and r.total_swap - r.free_swap > v_swap * r.total_swap
    ),
    over as (
        select
            p.pk_proc, p.pk_frame, h.pk_host, r.rss, r.max_rss, r.swap, p.int_mem_reserved as reserved,
            n.mem_excess, n.swap_excess,
            sum(r.swap) over w - r.swap as swap_before, sum(r.rss) over w - r.rss as rss_before,
            row_number() over w as place
        from unnest(p_runs) as r
        join proc as p on p.pk_proc = r.pk_proc
        join host as h on h.pk_host = p.pk_host and not h.b_nimby
        left join needy as n on n.name = r.host_name
        where r.rss + r.swap > p.int_mem_reserved
        window w as (
            partition by h.pk_host order by r.swap desc, r.rss - p.int_mem_reserved desc, p.pk_proc
            rows unbounded preceding
        )
    ),
    doomed as (
        select
            o.pk_proc, o.pk_frame, o.pk_host,
            case
                when o.mem_excess is not null
                    then case
                        when o.place <= v_victims_max and o.swap_before < o.swap_excess
                            and o.rss_before < o.mem_excess
                            then 'memory: the host runs short and swaps, and the frame uses more than is reserved'
                    end
                when v_overboard >= 0 and (
                    o.rss >= (1 + v_overboard) * o.reserved
                    or (o.max_rss >= (1 + 2 * v_overboard) * o.reserved and o.rss >= 0.9 * o.max_rss)
                ) then 'memory: the frame uses far more than is reserved'
            end as reason
        from over as o
    ),
    marked as (
        insert into maestro.memory_kill (pk_proc, reason, at)
        select d.pk_proc, d.reason, p_now from doomed as d where d.reason is not null order by d.pk_proc
        on conflict (pk_proc) do nothing
    ),
    ordered as (
        insert into maestro.host_order (kind, pk_host, pk_proc, pk_frame, reason)
        select 'kill', d.pk_host, d.pk_proc, d.pk_frame, d.reason
        from doomed as d where d.reason is not null
        order by d.pk_host, d.pk_proc
        on conflict do nothing
    )
    select array_agg(d.pk_proc) into v_procs from doomed as d where d.reason is not null;
    if v_procs is not null then
        perform pg_notify('maestro_order', '');
    end if;
    return coalesce(v_procs, '{}');
end
$$;
comment on function maestro.kill_for_memory(maestro.host_report [], maestro.run_report [], timestamp with time zone) is
    'Orders kills of runs over their reservation on hosts that swap, and of runs far over it, as memory failures; '
    'returns their procs.';
