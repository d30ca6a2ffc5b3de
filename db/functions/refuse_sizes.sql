-- refuse_sizes: remembers that hosts refused frames as large as those of these procs, whatever the books say is idle.
-- Called by finish_launches under the tick's lock, before the procs go. The next ticks plan nothing so large there
-- until a report of the host says something new about its room (mark_hosts), or the time given is over (forget_state)
-- at the latest. p_seconds: that time, parallel to p_procs. Locks: host_refusal rows. Errors: none of its own.
create or replace function maestro.refuse_sizes(
    p_procs text [], p_seconds double precision [], p_now timestamptz
) returns void
language sql volatile
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
    insert into maestro.host_refusal as r (pk_host, cores, mark, until)
    select p.pk_host, min(p.int_cores_reserved), max(m.mark), p_now + make_interval(secs => max(s.seconds))
    from unnest(p_procs, p_seconds) as s (pk_proc, seconds)
    join proc as p on p.pk_proc = s.pk_proc
    left join maestro.host_mark as m on m.pk_host = p.pk_host
    group by p.pk_host
    order by p.pk_host
    on conflict (pk_host) do update set
        cores = case
            when r.mark is not distinct from excluded.mark then least(r.cores, excluded.cores)
            else excluded.cores
        end,
        mark = excluded.mark,
        until = excluded.until;
$$;
comment on function maestro.refuse_sizes(text [], double precision [], timestamp with time zone) is
    'Bars sizes (core points) of these procs from their hosts until the hosts report something new, or p_seconds are '
    'over.';
