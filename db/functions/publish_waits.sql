-- publish_waits: stores why each weighed layer waits; rows that say the same as before are not written again. Phase 9.
-- p_layers and p_kinds are parallel: a layer, and the kind of its wait, a position (from 1) in p_reasons (buckets) and
-- p_all_reasons (JSON).
create or replace function maestro.publish_waits(
    p_tick_id bigint, p_layers text [], p_kinds integer [], p_reasons text [], p_all_reasons text []
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_mergejoin = off
-- A table that was never analysed looks empty: looped over, it would be read once a row.
set enable_nestloop = off
as $$
declare
    v_all_reasons constant jsonb [] := p_all_reasons;
begin
    delete from maestro.layer_wait as w
    where not exists (select from unnest(p_layers) as n (pk_layer) where n.pk_layer = w.pk_layer);

    -- Two statements, since "on conflict" would cost each new row an extra log record; the tick's lock keeps others out.
    with kind as materialized (
        select k.* from unnest(p_reasons, v_all_reasons) with ordinality as k (reason, reasons, kind)
    )
    update maestro.layer_wait as w set reason = k.reason, reasons = k.reasons, tick_id = p_tick_id
    from unnest(p_layers, p_kinds) as n (pk_layer, kind)
    join kind as k on k.kind = n.kind
    where w.pk_layer = n.pk_layer and (w.reason <> k.reason or w.reasons <> k.reasons);

    with kind as materialized (
        select k.* from unnest(p_reasons, v_all_reasons) with ordinality as k (reason, reasons, kind)
    )
    insert into maestro.layer_wait (pk_layer, reason, reasons, tick_id)
    select n.pk_layer, k.reason, k.reasons, p_tick_id
    from unnest(p_layers, p_kinds) as n (pk_layer, kind)
    join kind as k on k.kind = n.kind
    where not exists (select from maestro.layer_wait as o where o.pk_layer = n.pk_layer);
end
$$;
comment on function maestro.publish_waits(bigint, text [], integer [], text [], text []) is
    'Brings maestro.layer_wait to this tick''s reasons, writing only what changed.';
