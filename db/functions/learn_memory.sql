-- learn_memory: takes peaks of frames' memory into what is known of their layers: the last 32 frames of each, and their
-- median. Parallel arrays: layer, frame, peak in KiB; a later entry of the same frame replaces an earlier one.
-- Called by the tick alone (take_samples, apply_completions), so no two writers meet.
-- Locks layer_memory rows sorted by key. Errors: none of its own.
create or replace function maestro.learn_memory(p_layers text [], p_frames text [], p_peaks bigint []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_kept constant integer := 32;
begin
    with seen as (
        select distinct on (s.pk_layer, s.pk_frame)
            s.pk_layer, hashtext(s.pk_frame) as frame, s.peak, s.place
        from unnest(p_layers, p_frames, p_peaks) with ordinality as s (pk_layer, pk_frame, peak, place)
        where s.peak > 0
        order by s.pk_layer, s.pk_frame, s.place desc
    ),
    fresh as materialized (
        select
            n.pk_layer, array_agg(n.frame order by n.place) as frames, array_agg(n.peak order by n.place) as peaks
        from seen as n
        group by n.pk_layer
    ),
    -- Whole arrays are joined. Taking them apart costs ten times as much, so only a frame that is known already has
    -- its layer's taken apart, for its old peak to go.
    merged as materialized (
        select
            n.pk_layer,
            case
                when m.frames && n.frames then (
                    select array_agg(e.frame order by e.place)
                    from unnest(m.frames) with ordinality as e (frame, place)
                    where e.frame <> all(n.frames)
                )
                else m.frames
            end || n.frames as frames,
            case
                when m.frames && n.frames then (
                    select array_agg(e.peak order by e.place)
                    from unnest(m.frames, m.peaks) with ordinality as e (frame, peak, place)
                    where e.frame <> all(n.frames)
                )
                else m.peaks
            end || n.peaks as peaks
        from fresh as n
        left join maestro.layer_memory as m on m.pk_layer = n.pk_layer
    ),
    latest as materialized (
        select
            k.pk_layer, k.frames[greatest(cardinality(k.frames) - v_kept + 1, 1):] as frames,
            k.peaks[greatest(cardinality(k.peaks) - v_kept + 1, 1):] as peaks
        from merged as k
    )
    insert into maestro.layer_memory as m (pk_layer, frames, peaks, median_rss, samples)
    select
        k.pk_layer, k.frames, k.peaks,
        (select percentile_disc(0.5) within group (order by e.peak) from unnest(k.peaks) as e (peak)),
        cardinality(k.peaks)
    from latest as k
    order by k.pk_layer
    on conflict (pk_layer) do update set
        frames = excluded.frames, peaks = excluded.peaks, median_rss = excluded.median_rss, samples = excluded.samples;
end
$$;
comment on function maestro.learn_memory(text [], text [], bigint []) is
    'Takes peaks of frames (KiB) into maestro.layer_memory: the last 32 frames of a layer, and their median.';
