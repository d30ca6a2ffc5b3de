-- someone_listens: whether silence means that hosts are silent, and not that nobody heard them.
-- Called by the sweep before it judges by the age of reports. False while no launcher's heartbeat is younger than a
-- minute, after the sweep itself had stopped for a minute, and for host_down_seconds after either, so that every
-- host has had the time to report again. Where no launcher ever registered (reports come in by hand) it is true.
-- Locks: a row of sweep_clock. Errors: none.
create or replace function maestro.someone_listens(p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_heard timestamptz;
    v_watched timestamptz;
    v_pause timestamptz;
begin
    select max(l.heartbeat_at) into v_heard from maestro.launcher as l;
    if v_heard is null then
        return true;
    end if;
    select
        max(c.last_at) filter (where c.task = 'watch'), max(c.last_at) filter (where c.task = 'pause')
    into v_watched, v_pause
    from maestro.sweep_clock as c;
    insert into maestro.sweep_clock (task, last_at) values ('watch', p_now)
    on conflict (task) do update set last_at = excluded.last_at;

    if v_heard < p_now - interval '60 s' or v_watched < p_now - interval '60 s' then
        insert into maestro.sweep_clock (task, last_at) values ('pause', p_now)
        on conflict (task) do update set last_at = excluded.last_at;
        return false;
    end if;
    return v_pause is null
        or v_pause <= p_now - make_interval(secs => maestro.setting('host_down_seconds')::integer);
end
$$;
comment on function maestro.someone_listens(timestamp with time zone) is
    'True if reports could have arrived for at least host_down_seconds, so that silence may be held against hosts.';
