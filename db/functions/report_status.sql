-- report_status: the periodic reports of hosts (HostReport, an object or an array, protobuf's JSON form).
-- Called by the launchers' intake, or by hand. A fixed number of statements, whatever the number of hosts and frames.
-- Of several reports of one host the last counts. Result: {"hosts": n, "kills": orders written}.
--
-- Running frames: a run is ours if its resource id is a proc of that host that holds that frame; only then its usage
-- is stored and its booking confirmed (ts_ping). A report that lists a frame whose completion has been applied finds no
-- proc and so changes nothing. See grow_reservations, kill_for_memory, order_kills and watch_leaks for the rest.
-- Never waits for a tick: rows that it holds are skipped, the next report is due within seconds. So no deadlock with
-- one is possible. Locks: host_stat (sorted, waits for other reports only), then host, proc, host, frame, layer_mem,
-- job_mem, all with skip locked; host_leak and
-- host_mark rows of these hosts.
-- Errors: QM001 for a report that cannot be right; nothing of the call is stored then.
create or replace function maestro.report_status(
    p_report jsonb, p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_hosts maestro.host_report [];
    v_runs maestro.run_report [];
    v_ours maestro.run_report [];
    v_doomed text [];
    v_kills integer := 0;
begin
    with parsed as materialized (
        select distinct on ((r.report).name) r.report, r.frames
        from (
            select maestro.parse_host(e.body -> 'host', 'report') as report, e.body -> 'frames' as frames, e.place
            from jsonb_array_elements(maestro.report_list(p_report, 'host report')) with ordinality as e (body, place)
        ) as r
        order by (r.report).name, r.place desc
    )
    select
        (select array_agg(p.report) from parsed as p),
        (
            select array_agg(r)
            from parsed as p
            cross join lateral unnest(maestro.parse_runs((p.report).name, p.frames)) as r
        )
    into v_hosts, v_runs;
    if v_hosts is null then
        return jsonb_build_object('hosts', 0, 'kills', 0);
    end if;
    perform maestro.save_hosts(v_hosts, false, p_now);

    if v_runs is not null then
        select array_agg(k.run) into v_ours
        from (
            select r as run
            from unnest(v_runs) as r
            join proc as p on p.pk_proc = r.pk_proc and p.pk_frame = r.pk_frame
            join host as h on h.pk_host = p.pk_host and h.str_name = r.host_name
            order by p.pk_proc
            for no key update of p skip locked
        ) as k;
        if v_ours is not null then
            perform maestro.save_usage(v_ours, p_now);
            v_doomed := maestro.kill_for_memory(v_hosts, v_ours, p_now);
            perform maestro.grow_reservations(array(select r from unnest(v_ours) as r where r.pk_proc <> all(v_doomed)));
        end if;
        v_kills := coalesce(cardinality(v_doomed), 0) + maestro.order_kills(v_runs, p_now);
    end if;
    perform maestro.watch_leaks(v_hosts, p_now);
    perform maestro.mark_hosts(maestro.report_list(p_report, 'host report'), false, p_now);
    return jsonb_build_object('hosts', cardinality(v_hosts), 'kills', v_kills);
end
$$;
comment on function maestro.report_status(jsonb, timestamp with time zone) is
    'Takes HostReports (object or array; snake_case or camelCase; int64 as strings): {"hosts": n, "kills": n}. Unknown '
    'hosts are created. QM001 for a report that cannot be right; then nothing is stored.';
