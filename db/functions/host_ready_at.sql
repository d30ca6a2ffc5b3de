-- host_ready_at: when hosts are expected to have room: a held host for its owner's frame, any other for a frame that
-- takes all of it. The estimate stands on the mean run times of the layers that run there; null where one of those that
-- must end has no history. It is made anew at each look, so it never lies in the past; tick_id is the tick whose
-- reservations it knows.
create or replace view maestro.host_ready_at as
select
    h.pk_host,
    h.str_name,
    r.pk_layer,
    coalesce(r.cores_min, h.int_cores) as cores_needed,
    h.int_cores_idle as cores_idle,
    case
        when h.int_cores_idle >= coalesce(r.cores_min, h.int_cores) then now()
        else (
            select case when min(e.end_at) is not null then greatest(min(e.end_at), now()) end
            from (
                select
                    q.end_at,
                    h.int_cores_idle + sum(q.cores) over (order by q.end_at nulls last rows unbounded preceding) as free
                from (
                    select
                        p.int_cores_reserved as cores,
                        p.ts_dispatched + make_interval(
                            secs => u.int_clock_time_success::double precision / nullif(u.int_frame_success_count, 0)
                        ) as end_at
                    from public.proc as p
                    left join public.layer_usage as u on u.pk_layer = p.pk_layer
                    where p.pk_host = h.pk_host
                ) as q
            ) as e
            where e.free >= coalesce(r.cores_min, h.int_cores)
        )
    end as ready_at,
    (select max(t.tick_id) from maestro.tick as t) as tick_id
from public.host as h
join public.host_stat as hs on hs.pk_host = h.pk_host
left join maestro.reservation as r on r.pk_host = h.pk_host
where r.pk_host is not null or h.str_lock_state = 'OPEN' and hs.str_state = 'UP';
comment on view maestro.host_ready_at is
    'When hosts are expected to have room for the layer that they are held for (pk_layer), others for a whole-host '
    'frame: core points, a moment or null if nobody knows, and the last tick.';
