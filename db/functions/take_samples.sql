-- take_samples: takes what host reports have noted in maestro.peak_sample into maestro.layer_memory. Called by drain.
-- Locks the taken rows, then as learn_memory. Result: samples taken.
create or replace function maestro.take_samples() returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_layers text [];
    v_frames text [];
    v_peaks bigint [];
begin
    if not exists (select from maestro.peak_sample) then
        return 0;
    end if;
    with taken as (
        delete from maestro.peak_sample returning pk_layer, pk_frame, peak_rss
    )
    -- A frame's peak only rises while it runs.
    select
        array_agg(t.pk_layer order by t.peak_rss), array_agg(t.pk_frame order by t.peak_rss),
        array_agg(t.peak_rss order by t.peak_rss)
    into v_layers, v_frames, v_peaks
    from taken as t;
    perform maestro.learn_memory(v_layers, v_frames, v_peaks);
    return coalesce(cardinality(v_layers), 0);
end
$$;
comment on function maestro.take_samples() is
    'Moves the memory peaks that hosts reported into maestro.layer_memory; returns how many there were.';
