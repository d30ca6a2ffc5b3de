-- publish_waits: stores why each weighed layer waits; rows that say the same as before are not written again. Phase 9.
-- Parallel arrays: layer, bucket, all reasons as JSON text.
create or replace function maestro.publish_waits(
    p_tick_id bigint, p_layers text [], p_reasons text [], p_all_reasons text []
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_mergejoin = off
-- A table that was never analysed looks empty: looped over, it would be read once a row.
set enable_nestloop = off
as $$
begin
    delete from maestro.layer_wait as w
    where not exists (select from unnest(p_layers) as n (pk_layer) where n.pk_layer = w.pk_layer);

    -- Two statements, since "on conflict" would cost each new row an extra log record; the tick's lock keeps others out.
    update maestro.layer_wait as w set reason = n.reason, reasons = n.reasons::jsonb, tick_id = p_tick_id
    from unnest(p_layers, p_reasons, p_all_reasons) as n (pk_layer, reason, reasons)
    where w.pk_layer = n.pk_layer and (w.reason <> n.reason or w.reasons <> n.reasons::jsonb);

    insert into maestro.layer_wait (pk_layer, reason, reasons, tick_id)
    select n.pk_layer, n.reason, n.reasons::jsonb, p_tick_id
    from unnest(p_layers, p_reasons, p_all_reasons) as n (pk_layer, reason, reasons)
    where not exists (select from maestro.layer_wait as o where o.pk_layer = n.pk_layer);
end
$$;
comment on function maestro.publish_waits(bigint, text [], text [], text []) is
    'Brings maestro.layer_wait to this tick''s reasons, writing only what changed.';
