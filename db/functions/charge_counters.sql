-- charge_counters: adds booked cores and gpus to the five counter tables, one summed update a row.
-- Called by commit_plan. Arrays are parallel, one entry a (layer, allocation): show, allocation, layer, its job,
-- points, gpus.
-- Locks subscription, layer_resource, job_resource, folder_resource, point, in this order, each sorted by key.
-- Raises what their triggers raise when a burst or a job's maximum would be passed.
-- Its plans are kept, against commit_plan's setting, for the reason that start_frames gives.
create or replace function maestro.charge_counters(
    p_shows text [], p_allocs text [], p_layers text [], p_jobs text [], p_cores bigint [], p_gpus bigint []
) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set plan_cache_mode = auto
as $$
declare
    -- Parallel, one entry a job.
    v_jobs text [];
    v_folders text [];
    v_depts text [];
    v_shows text [];
    v_cores bigint [];
    v_gpus bigint [];
begin
    with need as (
        select b.pk_show, b.pk_alloc, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(p_shows, p_allocs, p_cores, p_gpus) as b (pk_show, pk_alloc, cores, gpus)
        group by b.pk_show, b.pk_alloc
    ),
    held as materialized (
        select t.pk_subscription, n.cores, n.gpus
        from subscription as t join need as n on n.pk_show = t.pk_show and n.pk_alloc = t.pk_alloc
        order by t.pk_subscription for no key update of t
    )
    update subscription as t set int_cores = t.int_cores + h.cores, int_gpus = t.int_gpus + h.gpus
    from held as h where t.pk_subscription = h.pk_subscription;

    with need as (
        select b.pk_layer, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(p_layers, p_cores, p_gpus) as b (pk_layer, cores, gpus)
        group by b.pk_layer
    ),
    held as materialized (
        select t.ctid as at, n.cores, n.gpus
        from layer_resource as t join need as n on n.pk_layer = t.pk_layer
        order by t.pk_layer for no key update of t
    )
    update layer_resource as t set int_cores = t.int_cores + h.cores, int_gpus = t.int_gpus + h.gpus
    from held as h where t.ctid = h.at;

    select
        array_agg(j.pk_job), array_agg(j.pk_folder), array_agg(j.pk_dept), array_agg(j.pk_show),
        array_agg(n.cores), array_agg(n.gpus)
    into v_jobs, v_folders, v_depts, v_shows, v_cores, v_gpus
    from (
        select b.pk_job, sum(b.cores)::bigint as cores, sum(b.gpus)::bigint as gpus
        from unnest(p_jobs, p_cores, p_gpus) as b (pk_job, cores, gpus)
        group by b.pk_job
    ) as n
    join job as j on j.pk_job = n.pk_job;

    with held as materialized (
        select t.ctid as at, n.cores, n.gpus
        from job_resource as t
        join unnest(v_jobs, v_cores, v_gpus) as n (pk_job, cores, gpus) on n.pk_job = t.pk_job
        order by t.pk_job for no key update of t
    )
    update job_resource as t set int_cores = t.int_cores + h.cores, int_gpus = t.int_gpus + h.gpus
    from held as h where t.ctid = h.at;

    with need as (
        select b.pk_folder, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(v_folders, v_cores, v_gpus) as b (pk_folder, cores, gpus)
        group by b.pk_folder
    ),
    held as materialized (
        select t.pk_folder_resource, n.cores, n.gpus
        from folder_resource as t join need as n on n.pk_folder = t.pk_folder
        order by t.pk_folder_resource for no key update of t
    )
    update folder_resource as t set int_cores = t.int_cores + h.cores, int_gpus = t.int_gpus + h.gpus
    from held as h where t.pk_folder_resource = h.pk_folder_resource;

    with need as (
        select b.pk_dept, b.pk_show, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(v_depts, v_shows, v_cores, v_gpus) as b (pk_dept, pk_show, cores, gpus)
        group by b.pk_dept, b.pk_show
    ),
    held as materialized (
        select t.pk_point, n.cores, n.gpus
        from point as t join need as n on n.pk_dept = t.pk_dept and n.pk_show = t.pk_show
        order by t.pk_point for no key update of t
    )
    update point as t set int_cores = t.int_cores + h.cores, int_gpus = t.int_gpus + h.gpus
    from held as h where t.pk_point = h.pk_point;
end
$$;
comment on function maestro.charge_counters(text [], text [], text [], text [], bigint [], bigint []) is
    'Adds bookings (show, allocation, layer, job, core points, gpus) to subscription, layer_resource, job_resource, '
    'folder_resource and point, in this lock order.';
