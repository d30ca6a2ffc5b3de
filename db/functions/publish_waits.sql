-- publish_waits: stores why each weighed layer waits; rows that say the same as before are not written again. Phase 9.
-- Parallel arrays: layer, bucket, all reasons as JSON text.
create or replace function maestro.publish_waits(
    p_tick_id bigint, p_layers text [], p_reasons text [], p_all_reasons text []
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_mergejoin = off
as $$
begin
    delete from maestro.layer_wait as w
    where not exists (select from unnest(p_layers) as n (pk_layer) where n.pk_layer = w.pk_layer);

    insert into maestro.layer_wait as w (pk_layer, reason, reasons, tick_id)
    select n.pk_layer, n.reason, n.reasons::jsonb, p_tick_id
    from unnest(p_layers, p_reasons, p_all_reasons) as n (pk_layer, reason, reasons)
    left join maestro.layer_wait as o on o.pk_layer = n.pk_layer
    where o.pk_layer is null or o.reason <> n.reason or o.reasons <> n.reasons::jsonb
    on conflict (pk_layer) do update set
        reason = excluded.reason, reasons = excluded.reasons, tick_id = excluded.tick_id;
end
$$;
comment on function maestro.publish_waits(bigint, text [], text [], text []) is
    'Brings maestro.layer_wait to this tick''s reasons, writing only what changed.';
