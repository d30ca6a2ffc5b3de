-- alloc_work: what waits for each allocation, as the last tick left it: for whoever starts machines on demand. Work
-- that may run in several allocations counts in each of them; work that a gate holds back (paused, start-after) in
-- none.
create or replace view maestro.alloc_work as
with last as (
    select t.tick_id, t.started_at, t.stats -> 'work' as work
    from maestro.tick as t
    where t.status = 'planned'
    order by t.tick_id desc
    limit 1
)
select
    a.pk_alloc,
    a.str_name as alloc,
    coalesce((w.value ->> 'layers')::bigint, 0) as layers,
    coalesce((w.value ->> 'frames')::bigint, 0) as waiting_frames,
    coalesce((w.value ->> 'cores')::bigint, 0) as cores,
    coalesce((w.value ->> 'mem')::bigint, 0) as mem,
    coalesce((w.value ->> 'gpus')::bigint, 0) as gpus,
    l.tick_id,
    l.started_at
from last as l
cross join public.alloc as a
left join lateral jsonb_each(l.work) as w on w.key = a.pk_alloc;
comment on view maestro.alloc_work is
    'Waiting layers and frames per allocation with what they ask in sum (core points, KiB, gpus), as of the last tick.';
