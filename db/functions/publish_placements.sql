-- publish_placements: stores what the tick decided, one row a (layer, host). Phase 9.
-- p_layers, p_hosts: keys; the other arrays are parallel: positions from 1 in those, frames, score of the first frame,
-- outcome.
create or replace function maestro.publish_placements(
    p_tick_id bigint, p_layers text [], p_hosts text [],
    p_layer integer [], p_host integer [], p_frames integer [], p_score double precision [], p_outcome text []
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into maestro.placement (
        tick_id, pk_layer, pk_host, frames, score, score_terms, warmth, backfill, outcome
    )
    select p_tick_id, l.pk_layer, h.pk_host, p.frames, p.score, '{}', 'cold', false, p.outcome
    from unnest(p_layer, p_host, p_frames, p_score, p_outcome) as p (layer, host, frames, score, outcome)
    join unnest(p_layers) with ordinality as l (pk_layer, number) on l.number = p.layer
    join unnest(p_hosts) with ordinality as h (pk_host, number) on h.number = p.host;
$$;
comment on function maestro.publish_placements(
    bigint, text [], text [], integer [], integer [], integer [], double precision [], text []
) is 'Writes a tick''s placements, one row a layer and host.';
