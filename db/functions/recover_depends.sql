-- recover_depends: depends whose end was never noticed, and frames that wait for nothing.
-- Part of the sweep. Satisfies by the same rules as completions do (releasing_frames, settle): a done frame, a complete
-- layer, a finished job. Then frees frames in DEPEND that no active depend covers. At most 1,000 depends a call.
-- A healthy farm has none: each correction is written to maestro.fault. Locks as close_depends, lock_frames.
-- Result: depends closed and frames freed.
create or replace function maestro.recover_depends(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_only_success boolean := maestro.setting('depend_satisfy_only_on_frame_success')::boolean;
    v_depends text [];
    v_frames text [];
begin
    v_depends := array(
        select d.pk_depend
        from job as e
        join depend as d on d.pk_job_depend_er = e.pk_job and d.b_active and not d.b_composite
        left join frame as f on f.pk_frame = d.pk_frame_depend_on
        left join layer_stat as s on s.pk_layer = d.pk_layer_depend_on
        left join job as j on j.pk_job = d.pk_job_depend_on
        where e.str_state <> 'FINISHED'
            and case
                when d.str_type in ('FRAME_ON_FRAME', 'LAYER_ON_FRAME', 'JOB_ON_FRAME')
                    then f.str_state = 'SUCCEEDED' or f.str_state = 'EATEN' and not v_only_success
                when d.str_type = 'LAYER_ON_LAYER' and d.b_any
                    and s.int_succeeded_count + case when v_only_success then 0 else s.int_eaten_count end > 0
                    then true
                when d.str_type in ('JOB_ON_LAYER', 'LAYER_ON_LAYER', 'FRAME_ON_LAYER')
                    then j.str_state <> 'STARTUP' and s.int_total_count > 0
                        and s.int_waiting_count = 0 and s.int_running_count = 0 and s.int_dead_count = 0
                        and s.int_depend_count = 0 and s.int_checkpoint_count = 0
                when d.str_type in ('JOB_ON_JOB', 'LAYER_ON_JOB', 'FRAME_ON_JOB') then j.str_state = 'FINISHED'
                else false
            end
        limit 1000
    );
    perform maestro.close_depends(v_depends, p_now);
    insert into maestro.fault (at, kind, detail)
    select p_now, 'depend left open', jsonb_build_object('pk_depend', d.pk_depend)
    from unnest(v_depends) as d (pk_depend);

    v_frames := array(
        select f.pk_frame
        from job as j
        join layer_stat as s on s.pk_job = j.pk_job and s.int_depend_count > 0
        join frame as f on f.pk_layer = s.pk_layer and f.str_state = 'DEPEND'
        where j.str_state = 'PENDING'
            and not exists (
                select from depend as d
                where d.b_active and not d.b_composite and d.pk_frame_depend_er = f.pk_frame
                    and d.str_type like 'FRAME\_ON\_%'
            )
            and not exists (
                select from depend as d
                where d.b_active and not d.b_composite and d.pk_layer_depend_er = f.pk_layer
                    and d.str_type like 'LAYER\_ON\_%'
            )
            and not exists (
                select from depend as d
                where d.b_active and not d.b_composite and d.pk_job_depend_er = f.pk_job
                    and d.str_type like 'JOB\_ON\_%'
            )
        limit 1000
    );
    if cardinality(v_frames) > 0 then
        perform maestro.lock_frames(v_frames);
        update frame as f set
            int_depend_count = 0, str_state = 'WAITING', ts_updated = p_now, ts_eligible = p_now,
            int_version = f.int_version + 1
        where f.pk_frame = any(v_frames) and f.str_state = 'DEPEND';
        insert into maestro.fault (at, kind, detail)
        select p_now, 'frame waited for nothing', jsonb_build_object('pk_frame', f.pk_frame)
        from unnest(v_frames) as f (pk_frame);
    end if;
    return cardinality(v_depends) + cardinality(v_frames);
end
$$;
comment on function maestro.recover_depends(timestamp with time zone) is
    'Closes active depends on what is done, and frees frames that no active depend covers; returns the corrections.';
