-- placement: what each tick decided, one row per layer, host and outcome. Ask by tick_id: it finds the tick's arrays.
-- outcome is booked, or the reason for which the guards dropped those frames.
create or replace view maestro.placement as
select
    t.tick_id,
    l.pk_layer,
    h.pk_host,
    p.frames,
    p.score,
    '{}'::jsonb as score_terms,
    'cold'::text as warmth,
    false as backfill,
    p.outcome
from maestro.tick_plan as t
cross join lateral unnest(t.layer, t.host, t.frames, t.score, t.outcome) as p (layer, host, frames, score, outcome)
join lateral unnest(t.layers) with ordinality as l (pk_layer, layer) on l.layer = p.layer
join lateral unnest(t.hosts) with ordinality as h (pk_host, host) on h.host = p.host;
comment on view maestro.placement is
    'Placements of the kept ticks: frames of a layer on a host, the score of the first, and what became of them.';
