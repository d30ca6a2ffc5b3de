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
    with seen as materialized (
        select distinct on (s.pk_layer, s.pk_frame)
            s.pk_layer, hashtext(s.pk_frame) as frame, s.peak, s.place
        from unnest(p_layers, p_frames, p_peaks) with ordinality as s (pk_layer, pk_frame, peak, place)
        where s.peak > 0
        order by s.pk_layer, s.pk_frame, s.place desc
    ),
    merged as (
        select n.pk_layer, n.frame, n.peak, n.place from seen as n
        union all
        select m.pk_layer, e.frame, e.peak, e.place - v_kept
        from maestro.layer_memory as m
        cross join lateral unnest(m.frames, m.peaks) with ordinality as e (frame, peak, place)
        where m.pk_layer in (select n.pk_layer from seen as n)
            and not exists (select from seen as n where n.pk_layer = m.pk_layer and n.frame = e.frame)
    ),
    latest as (
        select m.*, row_number() over (partition by m.pk_layer order by m.place desc) as age from merged as m
    )
    insert into maestro.layer_memory as m (pk_layer, frames, peaks, median_rss, samples)
    select
        k.pk_layer, array_agg(k.frame order by k.place), array_agg(k.peak order by k.place),
        percentile_disc(0.5) within group (order by k.peak), count(*)
    from latest as k
    where k.age <= v_kept
    group by k.pk_layer
    order by k.pk_layer
    on conflict (pk_layer) do update set
        frames = excluded.frames, peaks = excluded.peaks, median_rss = excluded.median_rss, samples = excluded.samples;
end
$$;
comment on function maestro.learn_memory(text [], text [], bigint []) is
    'Takes peaks of frames (KiB) into maestro.layer_memory: the last 32 frames of a layer, and their median.';
