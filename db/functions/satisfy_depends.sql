-- satisfy_depends: closes the depends on things that are done, and frees the frames that waited for nothing else.
-- Called by settle, the sweep and operator verbs, inside the tick or under take_tick_lock.
--
-- p_frames: frames that are done (depends of type *_ON_FRAME on them, and LAYER_ON_LAYER "any" on their layers).
-- p_layers: complete layers (*_ON_LAYER). p_jobs: finished jobs (*_ON_JOB). Any of them may be null.
-- Each frame that waited is written once, whatever number of its depends is satisfied here; the trigger on frame turns
-- DEPEND into WAITING at zero. Composite depends (FRAME_BY_FRAME, PREVIOUS_FRAME) close with their last child.
-- Locks: depend rows, then frames, layer_stat, job_stat by trigger. Result: depends satisfied.
create or replace function maestro.satisfy_depends(
    p_frames text [], p_layers text [], p_jobs text [], p_now timestamptz
) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_depends text [];
begin
    v_depends := array(
        select d.pk_depend
        from depend as d
        where d.b_active and not d.b_composite and d.pk_frame_depend_on = any(p_frames)
            and d.str_type in ('FRAME_ON_FRAME', 'LAYER_ON_FRAME', 'JOB_ON_FRAME')
        union
        select d.pk_depend
        from depend as d
        where d.b_active and not d.b_composite and d.b_any and d.str_type = 'LAYER_ON_LAYER'
            and d.pk_layer_depend_on in (select f.pk_layer from frame as f where f.pk_frame = any(p_frames))
        union
        select d.pk_depend
        from depend as d
        where d.b_active and not d.b_composite and d.pk_layer_depend_on = any(p_layers)
            and d.str_type in ('JOB_ON_LAYER', 'LAYER_ON_LAYER', 'FRAME_ON_LAYER')
        union
        select d.pk_depend
        from depend as d
        where d.b_active and not d.b_composite and d.pk_job_depend_on = any(p_jobs)
            and d.str_type in ('JOB_ON_JOB', 'LAYER_ON_JOB', 'FRAME_ON_JOB')
    );
    return maestro.close_depends(v_depends, p_now);
end
$$;
comment on function maestro.satisfy_depends(text [], text [], text [], timestamp with time zone) is
    'Satisfies active depends on done frames, complete layers and finished jobs, and frees frames that waited for '
    'nothing else; returns the number of depends satisfied.';
