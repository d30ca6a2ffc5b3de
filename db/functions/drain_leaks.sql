-- drain_leaks: drains hosts whose memory leaks (watch_leaks), before the kernel kills their frames. Part of the sweep.
-- A host that is drained or locked already is left as it is. Each is written to maestro.fault. host_leak is only read:
-- its rows are the reports' (watch_leaks), which never wait for a tick.
-- Locks: as drain_host, in order of pk_host. Result: hosts drained.
create or replace function maestro.drain_leaks(p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_host record;
    v_count integer := 0;
begin
    for v_host in
        select h.pk_host, h.str_name, l.leaked_kib
        from maestro.host_leak as l
        join host as h on h.pk_host = l.pk_host and h.str_lock_state <> 'LOCKED'
        where l.reports >= 3 and l.since <= p_now - interval '1 minute'
            and not exists (select from maestro.host_drain as d where d.pk_host = l.pk_host)
        order by h.pk_host
    loop
        perform maestro.drain_host(
            v_host.pk_host, format('misses %s MiB of memory that no frame uses', v_host.leaked_kib / 1024)
        );
        insert into maestro.fault (at, kind, detail)
        values (p_now, 'memory leak', jsonb_build_object(
            'pk_host', v_host.pk_host, 'host', v_host.str_name, 'leaked_kib', v_host.leaked_kib
        ));
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
comment on function maestro.drain_leaks(timestamp with time zone) is
    'Drains hosts that miss more than host_leak_mb of memory for three reports and a minute; returns how many.';
