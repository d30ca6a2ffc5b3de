-- stat_line: the last ticks in one line, made to be pasted into a report. Reads maestro.tick alone.
-- p_window: how far back. Result: text; times in ms, cores whole. avg and max leave ticks that failed aside.
create or replace function maestro.stat_line("window" interval default '5 minutes') returns text
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
    with recent as (
        select t.* from maestro.tick as t where t.started_at > clock_timestamp() - "window"
    ),
    latest as (
        select t.stats from recent as t where t.status = 'planned' order by t.tick_id desc limit 1
    ),
    -- A short spike must show: each bucket's highest count in the window.
    peak as (
        select w.key, max(w.value::bigint) as frames
        from recent as t, jsonb_each_text(t.stats -> 'waiting') as w
        where t.status = 'planned'
        group by w.key
    )
    select format(
        'Maestro stat: win=%ss ticks=%s errors=%s avgTick=%sms maxTick=%sms'
        ' | farm hosts=%s cores=%s idleCores=%s util=%s%% groups=%s'
        ' | flow committed=%s planned=%s dropped=%s drained=%s swept=%s'
        ' | resv held=%s heldCores=%s granted=%s reqs=%s backfilled=%s'
        ' | waitlist peak %s',
        extract(epoch from "window")::bigint, count(*) filter (where r.status = 'planned'),
        count(*) filter (where r.status = 'error'),
        coalesce(round(avg(r.ms) filter (where r.status = 'planned'), 1), 0),
        coalesce(round(max(r.ms) filter (where r.status = 'planned'), 1), 0),
        coalesce(l.stats ->> 'hosts', '0'), coalesce(l.stats ->> 'cores', '0'),
        coalesce(l.stats ->> 'idle_cores', '0'),
        coalesce(round(
            100 - 100.0 * (l.stats ->> 'idle_cores')::numeric / nullif((l.stats ->> 'cores')::numeric, 0), 1
        ), 0),
        coalesce(l.stats ->> 'groups', '0'),
        coalesce(sum(r.committed), 0), coalesce(sum(r.planned), 0), coalesce(sum(r.planned - r.committed), 0),
        coalesce(sum((r.stats ->> 'drained')::bigint), 0), coalesce(sum((r.stats ->> 'swept')::bigint), 0),
        coalesce(l.stats #>> '{reservations,held}', '0'), coalesce(l.stats ->> 'held_cores', '0'),
        coalesce(sum((r.stats #>> '{reservations,granted}')::bigint), 0),
        coalesce(sum((r.stats #>> '{reservations,requested}')::bigint), 0),
        coalesce(sum((r.stats ->> 'backfilled')::bigint), 0),
        coalesce((select string_agg(p.key || '=' || p.frames, ' ' order by p.key) from peak as p), 'none')
    )
    from recent as r
    left join latest as l on true
    group by l.stats;
$$;
comment on function maestro.stat_line(interval) is
    'One line on the ticks of the window: health, farm fill, flow, and each waiting bucket''s peak.';
