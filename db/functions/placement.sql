-- placement: what each tick decided, one row per layer, host, kind and outcome. Ask by tick_id: it finds the tick's
-- arrays, of which those that hold nothing but the usual are empty. score and its terms are those of the first frame;
-- warmth is live_warm, cache_warm or cold; backfill frames borrow cores of a host held for another layer. outcome is
-- booked, or why the guards dropped those frames.
create or replace view maestro.placement as
select
    t.tick_id,
    l.pk_layer,
    h.pk_host,
    p.frames,
    coalesce(p.term_cores, 0) + coalesce(p.term_mem, 0) + coalesce(p.term_gpus, 0) + coalesce(p.term_gpu_mem, 0)
    + coalesce(p.term_locality, 0) + coalesce(p.term_seat, 0) as score,
    jsonb_strip_nulls(jsonb_build_object(
        'cores', nullif(p.term_cores, 0), 'mem', nullif(p.term_mem, 0), 'gpus', nullif(p.term_gpus, 0),
        'gpu_mem', nullif(p.term_gpu_mem, 0), 'locality', nullif(p.term_locality, 0), 'seat', nullif(p.term_seat, 0)
    )) as score_terms,
    coalesce(p.warmth, 'cold') as warmth,
    coalesce(p.backfill, false) as backfill,
    coalesce(p.outcome, 'booked') as outcome
from maestro.tick_plan as t
cross join lateral unnest(
    t.layer, t.host, t.frames, t.term_cores, t.term_mem, t.term_gpus, t.term_gpu_mem, t.term_locality,
    t.term_seat, t.warmth, t.backfill, t.outcome
) as p (
    layer, host, frames, term_cores, term_mem, term_gpus, term_gpu_mem, term_locality, term_seat, warmth,
    backfill, outcome
)
join lateral unnest(t.layers) with ordinality as l (pk_layer, layer) on l.layer = p.layer
join lateral unnest(t.hosts) with ordinality as h (pk_host, host) on h.host = p.host;
comment on view maestro.placement is
    'Placements of the kept ticks: frames of a layer on a host, score of the first and its terms, kind of locality, '
    'whether they backfill, and what became of them.';
