-- store_submission: writes the rows of one submission, whole sets at a time.
-- Called by submit_job alone, with rows that it has checked; the arrays are columns of equal length.
-- p_rows holds the short tables: {"job", "job_env", "layer", "layer_env", "layer_limit", "layer_output", "job_post"}.
--
-- Companions of job and layer come by trigger. Frames are inserted as WAITING, or DEPEND if they wait for something;
-- no insert counts them, so their counters are assigned here. A satisfied depend is stored inactive, its key as
-- signature. Depends on jobs outside: those satisfied since they were looked up are closed under the tick's lock.
-- Locks: the tick, if a depend leaves the spec; last, show_stats. Errors: unique_violation on a job's name.
create or replace function maestro.store_submission(
    p_rows jsonb,
    p_frame_key text [], p_frame_layer text [], p_frame_name text [],
    p_frame_number bigint [], p_frame_order bigint [], p_frame_waits bigint [],
    p_depend_key text [], p_depend_parent text [], p_depend_type text [],
    p_er_job text [], p_er_layer text [], p_er_frame text [],
    p_on_job text [], p_on_layer text [], p_on_frame text [],
    p_active boolean [], p_any boolean [], p_composite boolean []
) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_jobs text [] := array(select r ->> 'pk_job' from jsonb_array_elements(p_rows -> 'job') as r);
    v_outside text [];
begin
    insert into job (
        pk_job, pk_folder, pk_show, pk_dept, pk_facility, str_name, str_visible_name, str_show, str_shot, str_user,
        str_email, int_uid, str_state, str_os, str_log_dir, b_paused, b_autoeat, int_max_retries, int_max_cores,
        int_max_gpus, int_frame_count, int_layer_count
    )
    select
        r.pk_job, r.pk_folder, r.pk_show, r.pk_dept, r.pk_facility, r.str_name, r.str_name, r.str_show, r.str_shot,
        r.str_user, r.str_email, r.int_uid, r.str_state, r.str_os, r.str_log_dir, r.b_paused, r.b_autoeat,
        r.int_max_retries, r.int_max_cores, r.int_max_gpus, r.int_frame_count, r.int_layer_count
    from jsonb_populate_recordset(null::job, p_rows -> 'job') as r;

    update job_resource as s
    set int_priority = r.int_priority, int_max_cores = r.int_max_cores, int_max_gpus = r.int_max_gpus
    from jsonb_to_recordset(p_rows -> 'job') as r (
        pk_job text, int_priority integer, int_max_cores integer, int_max_gpus integer)
    where s.pk_job = r.pk_job;

    insert into job_env (pk_job_env, pk_job, str_key, str_value)
    select gen_random_uuid(), r.pk_job, r.str_key, r.str_value
    from jsonb_populate_recordset(null::job_env, p_rows -> 'job_env') as r;

    insert into job_post (pk_job_post, pk_job, pk_post_job)
    select gen_random_uuid(), r.pk_job, r.pk_post_job
    from jsonb_populate_recordset(null::job_post, p_rows -> 'job_post') as r;

    insert into layer (
        pk_layer, pk_job, str_name, str_cmd, str_range, int_chunk_size, int_dispatch_order, str_type, int_cores_min,
        int_cores_max, b_threadable, int_mem_min, int_gpus_min, int_gpus_max, int_gpu_mem_min, int_timeout,
        int_timeout_llu, str_tags, str_services
    )
    select
        r.pk_layer, r.pk_job, r.str_name, r.str_cmd, r.str_range, r.int_chunk_size, r.int_dispatch_order, r.str_type,
        r.int_cores_min, r.int_cores_max, r.b_threadable, r.int_mem_min, r.int_gpus_min, r.int_gpus_max,
        r.int_gpu_mem_min, r.int_timeout, r.int_timeout_llu, r.str_tags, r.str_services
    from jsonb_populate_recordset(null::layer, p_rows -> 'layer') as r;

    insert into layer_env (pk_layer_env, pk_layer, pk_job, str_key, str_value)
    select gen_random_uuid(), r.pk_layer, r.pk_job, r.str_key, r.str_value
    from jsonb_populate_recordset(null::layer_env, p_rows -> 'layer_env') as r;

    insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record)
    select gen_random_uuid(), r.pk_layer, r.pk_limit_record
    from jsonb_populate_recordset(null::layer_limit, p_rows -> 'layer_limit') as r;

    insert into layer_output (pk_layer_output, pk_layer, pk_job, str_filespec)
    select gen_random_uuid(), r.pk_layer, r.pk_job, r.str_filespec
    from jsonb_populate_recordset(null::layer_output, p_rows -> 'layer_output') as r;

    insert into frame (
        pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_depend_count, int_dispatch_order,
        int_layer_order, ts_updated, ts_llu, ts_eligible
    )
    select
        f.pk_frame, f.pk_layer, l.pk_job, f.str_name, case when f.waits > 0 then 'DEPEND' else 'WAITING' end,
        f.int_number, f.waits, f.int_dispatch_order, l.int_dispatch_order, now(), now(),
        case when f.waits = 0 then now() end
    from unnest(p_frame_key, p_frame_layer, p_frame_name, p_frame_number, p_frame_order, p_frame_waits)
        as f (pk_frame, pk_layer, str_name, int_number, int_dispatch_order, waits)
    join jsonb_to_recordset(p_rows -> 'layer') as l (pk_layer text, pk_job text, int_dispatch_order integer)
        on l.pk_layer = f.pk_layer;

    update layer_stat as s
    set int_total_count = c.total, int_waiting_count = c.total - c.held, int_depend_count = c.held
    from (
        select f.pk_layer, count(*) as total, count(*) filter (where f.waits > 0) as held
        from unnest(p_frame_layer, p_frame_waits) as f (pk_layer, waits)
        group by f.pk_layer
    ) as c
    where s.pk_layer = c.pk_layer;
    update job_stat as s
    set int_waiting_count = c.waiting, int_depend_count = c.held
    from (
        select t.pk_job, sum(t.int_waiting_count) as waiting, sum(t.int_depend_count) as held
        from layer_stat as t
        where t.pk_job = any(v_jobs)
        group by t.pk_job
    ) as c
    where s.pk_job = c.pk_job;

    insert into depend (
        pk_depend, pk_parent, str_type, str_target, pk_job_depend_er, pk_layer_depend_er, pk_frame_depend_er,
        pk_job_depend_on, pk_layer_depend_on, pk_frame_depend_on, b_active, b_any, b_composite, ts_satisfied,
        str_signature
    )
    select
        d.pk, d.parent, d.kind, case when d.er_job = d.on_job then 'INTERNAL' else 'EXTERNAL' end,
        d.er_job, d.er_layer, d.er_frame, d.on_job, d.on_layer, d.on_frame, d.active, d.any_frame, d.composite,
        case when not d.active then now() end,
        case
            when d.active then md5(concat_ws(
                '/', d.kind, d.er_job, d.er_layer, d.er_frame, 'on', d.on_job, d.on_layer, d.on_frame))::uuid::text
            else d.pk
        end
    from unnest(
        p_depend_key, p_depend_parent, p_depend_type, p_er_job, p_er_layer, p_er_frame,
        p_on_job, p_on_layer, p_on_frame, p_active, p_any, p_composite
    ) as d (pk, parent, kind, er_job, er_layer, er_frame, on_job, on_layer, on_frame, active, any_frame, composite);

    v_outside := array(
        select d.pk
        from unnest(p_depend_key, p_on_job, p_active, p_composite) as d (pk, on_job, active, composite)
        where d.active and not d.composite and d.on_job <> all(v_jobs)
    );
    if cardinality(v_outside) > 0 then
        perform maestro.settle_depends(v_outside);
    end if;

    -- A department without a point row is invisible to Cuebot and has nowhere to count its cores.
    insert into point (pk_point, pk_dept, pk_show)
    select distinct on (j.pk_dept, j.pk_show) gen_random_uuid(), j.pk_dept, j.pk_show
    from job as j
    where j.pk_job = any(v_jobs)
        and not exists (select from point as p where p.pk_dept = j.pk_dept and p.pk_show = j.pk_show)
    on conflict (pk_show, pk_dept) do nothing;
    update show_stats as s
    set int_frame_insert_count = s.int_frame_insert_count + cardinality(p_frame_key),
        int_job_insert_count = s.int_job_insert_count + cardinality(v_jobs)
    where s.pk_show = (p_rows -> 'job' -> 0 ->> 'pk_show');
end
$$;
comment on function maestro.store_submission(
    jsonb, text [], text [], text [], bigint [], bigint [], bigint [], text [], text [], text [], text [], text [], text [],
    text [], text [], text [], boolean [], boolean [], boolean []
) is 'Inserts jobs, layers, frames and depends of one checked submission with their counters. For submit_job alone.';
