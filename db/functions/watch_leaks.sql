-- watch_leaks: notes hosts that miss more memory than host_leak_mb beyond what their frames use, report after report.
-- Called by report_status, after the use of the reports' runs was stored. The sweep drains hosts that it finds three
-- reports and a minute in a row (drain_leaks). A host that is being drained counts anew after it. Hosts of people
-- (b_nimby) are left alone; 0 switches it off.
-- Locks: host_leak rows of these hosts, which nobody else writes. Errors: none of its own.
create or replace function maestro.watch_leaks(p_hosts maestro.host_report [], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_limit constant bigint := maestro.setting('host_leak_mb')::bigint * 1024;
begin
    if v_limit = 0 and not exists (select from maestro.host_leak) then
        return;
    end if;
    with missed as materialized (
        select
            h.pk_host, h.int_mem - r.free_mem - u.used as kib,
            v_limit = 0 or exists (select from maestro.host_drain as d where d.pk_host = h.pk_host) as is_over
        from unnest(p_hosts) as r
        join host as h on h.str_name = r.name and not h.b_nimby
        cross join lateral (
            -- A frame that this report did not tell of may use all that is reserved for it.
            select coalesce(sum(case
                when p.ts_ping >= p_now then p.int_mem_used else greatest(p.int_mem_used, p.int_mem_reserved)
            end), 0)::bigint as used
            from proc as p where p.pk_host = h.pk_host
        ) as u
        where r.total_mem > 0
        order by h.pk_host
    ),
    healthy as (
        delete from maestro.host_leak where pk_host in (
            select m.pk_host from missed as m where m.kib <= v_limit or m.is_over
        )
    )
    insert into maestro.host_leak as l (pk_host, since, leaked_kib)
    select m.pk_host, p_now, m.kib from missed as m where m.kib > v_limit and not m.is_over
    on conflict (pk_host) do update set reports = l.reports + 1, leaked_kib = excluded.leaked_kib;
end
$$;
comment on function maestro.watch_leaks(maestro.host_report [], timestamp with time zone) is
    'Notes hosts that miss more than host_leak_mb of memory beyond what their frames use or have reserved.';
