-- limit_headrooms: the limits that may block waiting layers now, with their use and those layers. The tick's phase 5.
-- Only ENFORCED limits with a maximum count. A layer needs room in every limit that it is bound to.
--
-- stale_seconds: the age of the last usage report of a limit whose reports have stopped for longer than its time to
-- live; null while it is fresh. Such a limit blocks nothing, and so its layers are null, unless limit_policy says
-- closed: then it lets nothing through (max_value 0).
-- A layer that a limit's exit status holds back is bound to a limit of its own, `probe`, which lets one frame through
-- per delay. Locks nothing.
create or replace function maestro.limit_headrooms(p_now timestamptz)
returns table (
    pk_limit_record text,
    str_name text,
    per_host boolean,
    max_value integer,
    soft_value integer,
    used bigint,
    holders text [],
    layers text [],
    stale_seconds bigint,
    closed boolean
)
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
begin
    if exists (select from maestro.limit_probe) then
        return query
        select
            'probe ' || p.pk_layer, format('%s: back-off after a denial', r.str_name), false,
            (p.next_at <= p_now)::integer, -1, 0::bigint, null::text [], array[p.pk_layer], null::bigint, false
        from maestro.limit_probe as p
        join limit_record as r on r.pk_limit_record = p.pk_limit_record;
    end if;
    if not exists (select from layer_limit) then
        return;
    end if;
    return query
    with bound as materialized (
        select ll.pk_limit_record, array_agg(ll.pk_layer::text) as layers
        from layer_limit as ll
        join layer_stat as ls on ls.pk_layer = ll.pk_layer
        join job as j on j.pk_job = ls.pk_job
        where ls.int_waiting_count > 0 and j.str_state = 'PENDING'
        group by ll.pk_limit_record
    ),
    asked as materialized (
        select
            r.*, b.layers, coalesce(p.on_stale = 'closed', false) as closed,
            case when r.int_report_ttl > 0 and r.ts_reported <= p_now - make_interval(secs => r.int_report_ttl)
                then extract(epoch from p_now - r.ts_reported)::bigint
            end as stale_seconds
        from bound as b
        join limit_record as r on r.pk_limit_record = b.pk_limit_record
        left join maestro.limit_policy as p on p.pk_limit_record = r.pk_limit_record
        where r.str_enforcement = 'ENFORCED' and r.int_max_value is not null
    )
    select
        a.pk_limit_record::text, a.str_name::text, a.str_type = 'HOST',
        case when a.stale_seconds is null then a.int_max_value else 0 end,
        case when a.stale_seconds is null then a.int_soft_value else -1 end,
        coalesce(u.used, 0), u.holders,
        case when a.stale_seconds is null or a.closed then a.layers end,
        a.stale_seconds, a.closed
    from asked as a
    left join maestro.limit_usage_now(
        array(select f.pk_limit_record from asked as f where f.stale_seconds is null), p_now
    ) as u on u.pk_limit_record = a.pk_limit_record
    order by a.str_name;
end
$$;
comment on function maestro.limit_headrooms(timestamp with time zone) is
    'Enforced limits with waiting layers: their use, those layers, and the age of stopped usage reports (s). Locks '
    'nothing.';
