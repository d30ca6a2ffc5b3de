-- publish_waits: stores why each weighed layer waits, in place of what the tick before said. Phase 9.
-- p_layers and p_kinds are parallel: a layer, and the kind of its wait, a position (from 1) in p_buckets and p_reasons
-- (JSON). What says the same as before is not written again.
create or replace function maestro.publish_waits(
    p_tick_id bigint, p_layers text [], p_kinds integer [], p_buckets text [], p_reasons text []
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into maestro.tick_wait as w (tick_id, layers, kinds, buckets, reasons)
    values (p_tick_id, p_layers, p_kinds, p_buckets, p_reasons::jsonb [])
    on conflict (is_only) do update set
        tick_id = excluded.tick_id, layers = excluded.layers, kinds = excluded.kinds, buckets = excluded.buckets,
        reasons = excluded.reasons
    where (w.kinds, w.buckets, w.reasons, w.layers)
        is distinct from (excluded.kinds, excluded.buckets, excluded.reasons, excluded.layers);
end
$$;
comment on function maestro.publish_waits(bigint, text [], integer [], text [], text []) is
    'Stores this tick''s reasons for every waiting layer, as arrays; the view last_wait reads them.';
