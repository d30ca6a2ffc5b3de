-- report_startup: an RQD has started (BootReport, an object or an array, protobuf's JSON form).
-- Called by the launchers' intake, or by hand. Unknown hosts are created, known ones take over what is reported, their
-- hardware tags and capacity included. What still ran on the host is unbooked by the sweep, unless the next report of
-- the host shows that it runs on.
-- Result: {"hosts": n}. Errors: QM001 for a report that cannot be right; nothing of the call is stored then.
-- Locks: the tick's lock if more than one host reports (their rows are waited for), then as save_hosts, then
-- host_mark rows.
create or replace function maestro.report_startup(
    p_report jsonb, p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_hosts maestro.host_report [];
begin
    select array_agg(k.report) into v_hosts
    from (
        select distinct on ((r.report).name) r.report
        from (
            select maestro.parse_host(e.body -> 'host', 'boot report') as report, e.place
            from jsonb_array_elements(maestro.report_list(p_report, 'boot report')) with ordinality as e (body, place)
        ) as r
        order by (r.report).name, r.place desc
    ) as k;
    if v_hosts is null then
        return jsonb_build_object('hosts', 0);
    end if;
    if cardinality(v_hosts) > 1 then
        perform maestro.take_tick_lock();
    end if;
    perform maestro.save_hosts(v_hosts, true, p_now);
    perform maestro.mark_hosts(maestro.report_list(p_report, 'boot report'), true, p_now);
    return jsonb_build_object('hosts', cardinality(v_hosts));
end
$$;
comment on function maestro.report_startup(jsonb, timestamp with time zone) is
    'Takes BootReports (object or array; snake_case or camelCase; int64 as strings): {"hosts": n}. QM001 for a report '
    'that cannot be right; then nothing is stored.';
