-- remember: stores what a tick leaves to the next ones. The tick's phase 9. Arrays are parallel within each group:
-- reservations granted, and the hosts of those that end; net blocked time of layers (absent layers have none); layers
-- whose planned frames were all dropped, with the ticks in a row; frames booked by host; layers that booked.
-- Rows that say the same are not written again. Locks: reservation, blocked_debt, plan_zero, odometer, limit_probe
-- rows; the tick is their only writer. Errors: none of its own.
create or replace function maestro.remember(
    p_now timestamptz,
    p_grant_hosts text [], p_grant_layers text [], p_grant_priorities integer [], p_grant_cores integer [],
    p_releases text [],
    p_debt_layers text [], p_debts bigint [],
    p_zero_layers text [], p_zero_ticks integer [],
    p_hosts text [], p_frames integer [],
    p_booked_layers text []
) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
-- A table that was never analysed looks empty: looped over, it would be read once a row.
set enable_nestloop = off
as $$
begin
    if cardinality(p_releases) > 0 then
        delete from maestro.reservation where pk_host = any(p_releases);
    end if;
    if cardinality(p_grant_hosts) > 0 then
        insert into maestro.reservation as r (pk_host, pk_layer, priority, cores_min, granted_at)
        select g.pk_host, g.pk_layer, g.priority, g.cores, p_now
        from unnest(p_grant_hosts, p_grant_layers, p_grant_priorities, p_grant_cores)
            as g (pk_host, pk_layer, priority, cores)
        on conflict (pk_host) do update set
            pk_layer = excluded.pk_layer, priority = excluded.priority, cores_min = excluded.cores_min,
            granted_at = excluded.granted_at;
    end if;

    delete from maestro.blocked_debt where pk_layer <> all(p_debt_layers);
    if cardinality(p_debt_layers) > 0 then
        insert into maestro.blocked_debt as b (pk_layer, blocked_ms, updated_at)
        select d.pk_layer, d.ms, p_now
        from unnest(p_debt_layers, p_debts) as d (pk_layer, ms)
        left join maestro.blocked_debt as o on o.pk_layer = d.pk_layer
        where o.blocked_ms is distinct from d.ms
        on conflict (pk_layer) do update set blocked_ms = excluded.blocked_ms, updated_at = excluded.updated_at;
    end if;

    delete from maestro.plan_zero where pk_layer <> all(p_zero_layers);
    if cardinality(p_zero_layers) > 0 then
        insert into maestro.plan_zero as z (pk_layer, ticks)
        select n.pk_layer, n.ticks
        from unnest(p_zero_layers, p_zero_ticks) as n (pk_layer, ticks)
        left join maestro.plan_zero as o on o.pk_layer = n.pk_layer
        where o.ticks is distinct from n.ticks
        on conflict (pk_layer) do update set ticks = excluded.ticks;
    end if;

    if cardinality(p_hosts) > 0 then
        update maestro.odometer as o set frames = o.frames + b.frames
        from unnest(p_hosts, p_frames) as b (pk_host, frames)
        where o.pk_host = b.pk_host;
        insert into maestro.odometer (pk_host, frames)
        select b.pk_host, b.frames
        from unnest(p_hosts, p_frames) as b (pk_host, frames)
        where not exists (select from maestro.odometer as o where o.pk_host = b.pk_host);
    end if;

    if cardinality(p_booked_layers) > 0 and exists (select from maestro.limit_probe) then
        update maestro.limit_probe as p set next_at = p_now + make_interval(mins => r.int_delay_minutes)
        from limit_record as r
        where r.pk_limit_record = p.pk_limit_record and p.pk_layer = any(p_booked_layers);
    end if;
end
$$;
comment on function maestro.remember(
    timestamp with time zone, text [], text [], integer [], integer [], text [], text [], bigint [], text [], integer [],
    text [], integer [], text []
) is
    'Stores reservations granted and ended, blocked time, fruitless plans, odometers and tried denials of a tick.';
