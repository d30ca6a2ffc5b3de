-- layer_rank: where a waiting layer stands, each term of it, and who was served before it in the last tick.
-- A slot of an allocation goes to the show that runs least of its subscription's size (show_tier, the least over its
-- allocations; null: it has no size and takes what others leave), unless setting fair_share is off; within it by
-- lottery: draw_share is the layer's part of the draws of its show (of all, without fair_share), its weight over the
-- sum of weights. rank is the order of these terms: tier, weight, age of the job; with fifo the age decides among
-- equals.
create or replace view maestro.layer_rank as
with last as (
    select max(t.tick_id) as tick_id from maestro.tick as t where t.status = 'planned'
),
served as materialized (
    select p.layers[s.layer] as pk_layer, min(s.place) as place
    from last as l
    join maestro.tick_plan as p on p.tick_id = l.tick_id
    cross join lateral unnest(p.layer) with ordinality as s (layer, place)
    group by p.layers[s.layer]
),
term as (
    select
        w.pk_layer, j.pk_job, j.pk_show, ls.int_waiting_count as waiting_frames, w.reason, r.int_priority as priority,
        greatest(r.int_priority, 1) as weight, j.ts_started as job_started_at, f.is_fair,
        case when f.is_fair then (
            select min(s.int_cores::numeric / s.int_size)
            from public.subscription as s where s.pk_show = j.pk_show and s.int_size > 0
        ) end as show_tier
    from maestro.last_wait as w
    join public.layer_stat as ls on ls.pk_layer = w.pk_layer and ls.int_waiting_count > 0
    join public.job as j on j.pk_job = ls.pk_job
    join public.job_resource as r on r.pk_job = ls.pk_job
    cross join (
        select s.value::boolean as is_fair from maestro.setting as s where s.name = 'fair_share'
    ) as f
)
select
    t.pk_layer,
    t.pk_job,
    t.pk_show,
    t.waiting_frames,
    t.reason,
    rank() over (order by t.show_tier nulls last, t.weight desc, t.job_started_at) as rank,
    t.show_tier,
    t.priority,
    t.weight,
    t.weight::numeric / sum(t.weight) over (partition by case when t.is_fair then t.pk_show end) as draw_share,
    t.job_started_at,
    array(
        select s.pk_layer
        from served as s
        where s.place < coalesce((select o.place from served as o where o.pk_layer = t.pk_layer), s.place + 1)
        order by s.place
    ) as served_before,
    (select l.tick_id from last as l) as tick_id
from term as t;
comment on view maestro.layer_rank is
    'Rank of each waiting layer with its terms (show''s tier, priority, weight, share of the draws, age), and the layers '
    'that the last tick served before it, in order.';
