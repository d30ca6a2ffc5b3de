-- sweep_hosts: hosts that fell silent, hosts whose RQD started anew, hosts whose drain came to rest.
-- Part of the sweep.
--
-- Silent for host_down_seconds: DOWN, and the procs of DOWN hosts are unbooked with 399. Nothing is judged while
-- nobody was there to hear reports (see someone_listens): an outage of the database or of the launchers must not
-- cost the farm its frames.
-- Restarted: a proc from before the boot report that no report since has listed is unbooked with 301, once the host
-- has reported 15 s or more after its boot; a launch that is still open is left alone.
-- Closed (by nimby, a person, a fault): launches to it that nobody has taken are undone.
-- Drained: no proc left: the host is told to restart. Hosts that leak memory are drained (drain_leaks).
-- Locks: host_stat with skip locked, then as unbook. Result: hosts that went DOWN.
create or replace function maestro.sweep_hosts(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_down text [];
    v_procs text [];
    v_restarts integer;
begin
    if maestro.someone_listens(p_now) then
        with silent as (
            select s.pk_host
            from host_stat as s
            where s.str_state = 'UP'
                and s.ts_ping < p_now - make_interval(secs => (select maestro.setting('host_down_seconds'))::integer)
            order by s.pk_host
            limit 5000
            for no key update skip locked
        ),
        downed as (
            update host_stat as s set str_state = 'DOWN' from silent as k where s.pk_host = k.pk_host
            returning s.pk_host
        )
        select array_agg(d.pk_host) into v_down from downed as d;
        insert into maestro.fault (at, kind, detail)
        select p_now, 'host down', jsonb_build_object('pk_host', h.pk_host, 'host', h.str_name, 'ts_ping', s.ts_ping)
        from host as h join host_stat as s on s.pk_host = h.pk_host
        where h.pk_host = any(v_down);
    end if;

    v_procs := array(
        select p.pk_proc
        from host_stat as s join proc as p on p.pk_host = s.pk_host
        where s.str_state = 'DOWN'
        limit 5000
    );
    perform maestro.unbook(v_procs, 399, p_now);

    if exists (select from maestro.host_boot) then
        v_procs := array(
            select p.pk_proc
            from maestro.host_boot as b
            join host_stat as s on s.pk_host = b.pk_host
            join proc as p on p.pk_host = b.pk_host
            where s.ts_ping >= b.booted_at + interval '15 s' and p.ts_ping <= b.booted_at
                and not exists (
                    select from maestro.launch as l where l.pk_proc = p.pk_proc and l.state <> 'refused'
                )
                and not exists (select from maestro.completion as c where c.pk_proc = p.pk_proc)
            limit 5000
        );
        perform maestro.unbook_orphans(v_procs, 'its RQD started anew and does not run it', p_now);
        delete from maestro.host_boot as b
        where not exists (
            select from proc as p where p.pk_host = b.pk_host and p.ts_ping <= b.booted_at
        );
    end if;

    perform maestro.recall_launches(
        array(
            select h.pk_host from host as h join host_stat as s on s.pk_host = h.pk_host
            where h.str_lock_state <> 'OPEN' or s.str_state <> 'UP'
        ),
        p_now
    );

    perform maestro.drain_leaks(p_now);

    with rested as (
        update maestro.host_drain as d set state = 'restarting'
        where d.state = 'draining' and not exists (select from proc as p where p.pk_host = d.pk_host)
        returning d.pk_host, d.reason
    )
    insert into maestro.host_order (kind, pk_host, reason)
    select 'restart_idle', r.pk_host, r.reason from rested as r
    on conflict do nothing;
    get diagnostics v_restarts = row_count;
    if v_restarts > 0 then
        perform pg_notify('maestro_order', '');
    end if;
    return coalesce(cardinality(v_down), 0);
end
$$;
comment on function maestro.sweep_hosts(timestamp with time zone) is
    'Marks silent hosts DOWN and releases what they ran, frees what restarted RQDs forgot, orders restarts of drained '
    'hosts; returns the number of hosts that went DOWN.';
