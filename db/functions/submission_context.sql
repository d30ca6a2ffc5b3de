-- submission_context: what of the farm one spec asks for, in one answer.
-- Called by submit_job; p_needs is jobspec.depends.Needs as an object, the answer is read by jobspec.model.Context.
-- A job that a depend names is the living one of that name, else the latest that ended. A frame is done when it
-- satisfies depends on it (releasing_frames), a layer when none of its frames is left to run.
-- Locks: none. Errors: none.
create or replace function maestro.submission_context(p_pk_show text, p_needs jsonb) returns jsonb
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
    with wanted_service as (
        select jsonb_array_elements_text(p_needs -> 'services') as name union select 'default'
    ),
    on_job as materialized (
        select distinct on (j.str_name) j.pk_job, j.str_name, j.str_state
        from job as j
        where j.str_name in (select jsonb_array_elements_text(p_needs -> 'on_jobs'))
        order by j.str_name, j.str_state = 'FINISHED', j.ts_started desc, j.pk_job
    ),
    on_frame as materialized (
        select f.pk_frame, f.pk_layer, f.int_number
        from (
            select e.value ->> 0 as job_name, e.value ->> 1 as layer_name
            from jsonb_array_elements(p_needs -> 'on_layers') as e
        ) as w
        join on_job as j on j.str_name = w.job_name
        join layer as l on l.pk_job = j.pk_job and l.str_name = w.layer_name
        join frame as f on f.pk_layer = l.pk_layer
        union
        select f.pk_frame, f.pk_layer, f.int_number
        from (
            select e.value ->> 0 as job_name, e.value ->> 1 as frame_name
            from jsonb_array_elements(p_needs -> 'on_frames') as e
        ) as w
        join on_job as j on j.str_name = w.job_name
        join frame as f on f.pk_job = j.pk_job and f.str_name = w.frame_name
    ),
    done as materialized (
        select unnest(maestro.releasing_frames(array(select f.pk_frame from on_frame as f))) as pk_frame
    ),
    layer_frames as (
        select f.pk_layer, jsonb_agg(jsonb_build_array(
            f.int_number, f.pk_frame, d.pk_frame is not null) order by f.int_number) as list
        from on_frame as f left join done as d on d.pk_frame = f.pk_frame
        group by f.pk_layer
    ),
    job_layers as (
        select l.pk_job, jsonb_object_agg(l.str_name, jsonb_build_object(
            'pk_layer', l.pk_layer, 'range', l.str_range, 'chunk', l.int_chunk_size, 'frames', f.list,
            'done', s.int_total_count = s.int_succeeded_count + s.int_eaten_count)) as list
        from layer as l
        join layer_stat as s on s.pk_layer = l.pk_layer
        left join layer_frames as f on f.pk_layer = l.pk_layer
        where l.pk_job in (select j.pk_job from on_job as j)
        group by l.pk_job
    )
    select jsonb_build_object(
        'facilities', (
            select coalesce(jsonb_agg(jsonb_build_object(
                'pk_facility', f.pk_facility, 'name', f.str_name, 'default', f.b_default)), '[]')
            from facility as f
        ),
        'services', (
            select coalesce(jsonb_agg(maestro.submission_service(to_jsonb(s))), '[]')
            from service as s join wanted_service as w on w.name = s.str_name
        ),
        'show_services', (
            select coalesce(jsonb_agg(maestro.submission_service(to_jsonb(s))), '[]')
            from show_service as s join wanted_service as w on w.name = s.str_name
            where s.pk_show = p_pk_show
        ),
        'limits', (
            select coalesce(jsonb_object_agg(l.str_name, l.pk_limit_record), '{}')
            from limit_record as l
            where l.str_name in (select jsonb_array_elements_text(p_needs -> 'limits'))
        ),
        'pending', (
            select coalesce(jsonb_agg(j.str_visible_name), '[]')
            from job as j
            where j.str_visible_name in (select jsonb_array_elements_text(p_needs -> 'job_names'))
        ),
        'jobs', (
            select coalesce(jsonb_object_agg(j.str_name, jsonb_build_object(
                'pk_job', j.pk_job, 'finished', j.str_state = 'FINISHED', 'layers', coalesce(l.list, '{}'))), '{}')
            from on_job as j left join job_layers as l on l.pk_job = j.pk_job
        ),
        'log_root', coalesce(maestro.setting('log_root'), ''),
        'now_ms', (extract(epoch from clock_timestamp()) * 1000)::bigint
    );
$$;
comment on function maestro.submission_context(text, jsonb) is
    'What of the farm a spec of show p_pk_show asks for (p_needs: names of services, limits, jobs, layers, frames): '
    'facilities, services, limits, pending names and jobs with layers and frames.';
