-- waitlist: why each waiting layer waits, as the last tick saw it, with live frame counts.
create or replace view maestro.waitlist as
select
    l.pk_layer,
    l.pk_job,
    j.pk_show,
    ls.int_waiting_count as waiting_frames,
    w.reason,
    w.reasons,
    w.tick_id
from maestro.layer_wait as w
join public.layer as l on l.pk_layer = w.pk_layer
join public.job as j on j.pk_job = l.pk_job
join public.layer_stat as ls on ls.pk_layer = w.pk_layer
where ls.int_waiting_count > 0;
comment on view maestro.waitlist is 'One row a waiting layer: its bucket, all reasons, and the tick that said so.';
