-- launcher_metrics: the planner's figures for a launcher's /metrics page.
-- Called at each scrape (at most every two seconds a launcher). p_after_tick: the last tick counted by the caller, null
-- at first; counts cover the ticks after it. Gauges come from the last tick's row and from tables of a few rows.
-- Locks: none. Errors: none of its own.
create or replace function maestro.launcher_metrics(p_after_tick bigint) returns jsonb
language sql stable security definer
set search_path = pg_catalog, public, pg_temp
as $$
    with last as (
        select t.tick_id, t.started_at, t.stats from maestro.tick as t order by t.tick_id desc limit 1
    ),
    fresh as materialized (
        select t.tick_id, t.ms, t.stats
          from maestro.tick as t
         where p_after_tick is not null and t.tick_id > p_after_tick
         order by t.tick_id desc
         limit 1000
    ),
    placed as materialized (
        select p.pk_layer, p.warmth, sum(p.frames)::bigint as frames
          from maestro.placement as p
         where p.tick_id >= (select min(f.tick_id) from fresh as f)
           and p.tick_id <= (select max(f.tick_id) from fresh as f)
           and p.outcome = 'booked'
         group by p.pk_layer, p.warmth
    )
    select jsonb_build_object(
        'last_tick', coalesce((select l.tick_id from last as l), 0),
        'tick_age_seconds', (select extract(epoch from clock_timestamp() - l.started_at) from last as l),
        'stats', (select l.stats from last as l),
        'tick_ms', (select coalesce(jsonb_agg(f.ms), '[]') from fresh as f),
        'drift_repaired', (select coalesce(sum((f.stats ->> 'drift_repaired')::bigint), 0) from fresh as f),
        'passes', (
            select coalesce(jsonb_object_agg(e.reason, e.number), '{}')
              from (
                  -- A tick plans all groups in one pass, which ends for all of them alike.
                  select case
                             when (f.stats ->> 'out_of_time')::boolean then 'out_of_time'
                             when (f.stats ->> 'cut')::bigint > 0 then 'cut'
                             else 'completed'
                         end as reason,
                         sum((f.stats ->> 'groups')::bigint) as number
                    from fresh as f
                   where f.stats ? 'groups'
                   group by 1
              ) as e
        ),
        'booked', (
            select coalesce(jsonb_object_agg(e.warmth, e.frames), '{}')
              from (select p.warmth, sum(p.frames) as frames from placed as p group by p.warmth) as e
        ),
        'dispatched', (
            select coalesce(jsonb_object_agg(e.show, e.frames), '{}')
              from (
                  select j.str_show as show, sum(p.frames) as frames
                    from placed as p
                    join layer as y on y.pk_layer = p.pk_layer
                    join job as j on j.pk_job = y.pk_job
                   group by j.str_show
              ) as e
        ),
        'show_cores', (
            select coalesce(jsonb_object_agg(e.show, e.cores), '{}')
              from (
                  select s.str_name as show, sum(u.int_cores) / 100.0 as cores
                    from subscription as u
                    join show as s on s.pk_show = u.pk_show
                   group by s.str_name
              ) as e
        ),
        'running_frames', (
            select coalesce(sum(s.int_running_count), 0)::bigint
              from job as j
              join job_stat as s on s.pk_job = j.pk_job
             where j.str_state <> 'FINISHED'
        ),
        'stranded_cores', (
            select coalesce(sum(d.value::bigint), 0)
              from last as l
             cross join jsonb_each_text(l.stats -> 'stranded') as d
        )
    ) || (
        select jsonb_build_object(
                   'launch_depth', count(*),
                   'launch_oldest_seconds', coalesce(extract(epoch from clock_timestamp() - min(l.created_at)), 0)
               )
          from maestro.launch as l
         where l.state <> 'refused'
    ) || (
        select jsonb_build_object(
                   'completion_depth', count(*),
                   'completion_oldest_seconds', coalesce(extract(epoch from clock_timestamp() - min(c.received_at)), 0)
               )
          from maestro.completion as c
    );
$$;
comment on function maestro.launcher_metrics(bigint) is
    'The planner''s figures for /metrics: gauges from the last tick, counts over the ticks after p_after_tick.';
