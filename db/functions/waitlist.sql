-- waitlist: why each waiting layer waits, as the last tick saw it, with live frame counts.
-- A reason that is a cap carries its value as it is now, "cap": core points, gpus, frames, machines, or the setting's.
create or replace view maestro.waitlist as
select
    l.pk_layer,
    l.pk_job,
    j.pk_show,
    ls.int_waiting_count as waiting_frames,
    w.reason,
    (
        select jsonb_agg(e.told || jsonb_strip_nulls(jsonb_build_object('cap', e.cap)) order by e.place)
        from (
            select t.told, t.place, maestro.cap_value(l.pk_layer, t.told ->> 'reason') as cap
            from jsonb_array_elements(w.reasons) with ordinality as t (told, place)
        ) as e
    ) as reasons,
    w.tick_id
from maestro.last_wait as w
join public.layer as l on l.pk_layer = w.pk_layer
join public.job as j on j.pk_job = l.pk_job
join public.layer_stat as ls on ls.pk_layer = w.pk_layer
where ls.int_waiting_count > 0;
comment on view maestro.waitlist is
    'One row a waiting layer: its bucket, all reasons with the hosts that each rules out and the caps'' values, and the '
    'tick that said so.';
