-- trim_limits: which slots of a plan the limits do not allow as they stand now, in draw order. Called by commit_plan.
-- Arrays as there. Reports and other schedulers may have used up a limit since the snapshot; a slot needs room in every
-- limit of its layer. Result: numbers of the refused slots, from 1.
-- Locks the limits' rows (limit_record, sorted by key), so that usage reports wait for the commit. Errors: none.
create or replace function maestro.trim_limits(
    p_now timestamptz, p_layers text [], p_hosts text [], p_slot_layer integer [], p_slot_host integer []
) returns integer []
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_limits text [];
begin
    if not exists (select from layer_limit) then
        return '{}';
    end if;
    v_limits := array(
        select r.pk_limit_record
        from limit_record as r
        where r.str_enforcement = 'ENFORCED' and r.int_max_value is not null
            and (
                r.int_report_ttl = 0 or r.ts_reported is null
                or r.ts_reported > p_now - make_interval(secs => r.int_report_ttl)
            )
            and exists (
                select from layer_limit as ll
                where ll.pk_limit_record = r.pk_limit_record and ll.pk_layer = any(p_layers)
            )
        order by r.pk_limit_record
        for no key update of r
    );
    if cardinality(v_limits) = 0 then
        return '{}';
    end if;
    return array(
        with room as materialized (
            select
                r.pk_limit_record, r.str_type = 'HOST' as per_host, u.holders,
                case when r.str_type = 'HOST' and r.int_soft_value >= 0 then r.int_soft_value else r.int_max_value end
                - u.used as free
            from limit_record as r
            join maestro.limit_usage_now(v_limits, p_now) as u on u.pk_limit_record = r.pk_limit_record
        ),
        taken as (
            select
                r.pk_limit_record, r.per_host, r.free, s.number, s.host,
                row_number() over (partition by r.pk_limit_record order by s.number) as turn,
                min(s.number) over (partition by r.pk_limit_record, s.host) as host_first
            from room as r
            join layer_limit as ll on ll.pk_limit_record = r.pk_limit_record
            join unnest(p_layers) with ordinality as l (pk_layer, layer) on l.pk_layer = ll.pk_layer
            join unnest(p_slot_layer, p_slot_host) with ordinality as s (layer, host, number) on s.layer = l.layer
            where not r.per_host or p_hosts[s.host] <> all(r.holders)
        ),
        ranked as (
            select
                t.*,
                case when t.per_host
                    then dense_rank() over (partition by t.pk_limit_record order by t.host_first)
                    else t.turn
                end as place
            from taken as t
        )
        select distinct k.number::integer from ranked as k where k.place > k.free order by 1
    );
end
$$;
comment on function maestro.trim_limits(timestamp with time zone, text [], text [], integer [], integer []) is
    'Numbers (from 1) of a plan''s slots for which limits have no room left. Locks the limits'' rows.';
