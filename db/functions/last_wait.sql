-- last_wait: why each layer waits as the last tick saw it, a row a layer: bucket, reasons, and the tick that said so
-- first. A layer without waiting frames stays until the next tick: see waitlist.
create or replace view maestro.last_wait as
select
    n.pk_layer,
    k.bucket as reason,
    k.reasons,
    w.tick_id
from maestro.tick_wait as w
cross join lateral unnest(w.layers, w.kinds) as n (pk_layer, kind)
join lateral unnest(w.buckets, w.reasons) with ordinality as k (bucket, reasons, kind) on k.kind = n.kind;
comment on view maestro.last_wait is 'Why each layer waits, as the last tick saw it.';
