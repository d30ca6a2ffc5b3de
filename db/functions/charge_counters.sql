-- charge_counters: adds booked cores and gpus to the five counter tables, one summed update a row.
-- Called by commit_plan. Arrays are parallel, one entry a booking: layer, host, core points, gpus.
-- Locks subscription, layer_resource, job_resource, folder_resource, point, in this order, each sorted by key.
-- Raises what their triggers raise when a burst or a job's maximum would be passed.
create or replace function maestro.charge_counters(
    p_layers text [], p_hosts text [], p_cores integer [], p_gpus integer []
) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_keys text [];
    v_cores bigint [];
    v_gpus bigint [];
begin
    if p_layers is null then
        return;
    end if;

    with booked as materialized (
        select b.pk_layer, b.pk_host, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(p_layers, p_hosts, p_cores, p_gpus) as b (pk_layer, pk_host, cores, gpus)
        group by b.pk_layer, b.pk_host
    )
    select array_agg(t.pk_subscription), array_agg(t.cores), array_agg(t.gpus) into v_keys, v_cores, v_gpus
    from (
        select s.pk_subscription, sum(b.cores) as cores, sum(b.gpus) as gpus
        from booked as b
        join layer as l on l.pk_layer = b.pk_layer
        join job as j on j.pk_job = l.pk_job
        join host as h on h.pk_host = b.pk_host
        join subscription as s on s.pk_show = j.pk_show and s.pk_alloc = h.pk_alloc
        group by s.pk_subscription
        order by s.pk_subscription
    ) as t;
    perform from subscription where pk_subscription = any(v_keys) order by pk_subscription for no key update;
    update subscription as t set int_cores = t.int_cores + d.cores, int_gpus = t.int_gpus + d.gpus
    from unnest(v_keys, v_cores, v_gpus) as d (key, cores, gpus) where t.pk_subscription = d.key;

    select array_agg(t.pk_layer), array_agg(t.cores), array_agg(t.gpus) into v_keys, v_cores, v_gpus
    from (
        select b.pk_layer, sum(b.cores) as cores, sum(b.gpus) as gpus
        from unnest(p_layers, p_cores, p_gpus) as b (pk_layer, cores, gpus)
        group by b.pk_layer
    ) as t;
    perform from layer_resource where pk_layer = any(v_keys) order by pk_layer for no key update;
    update layer_resource as t set int_cores = t.int_cores + d.cores, int_gpus = t.int_gpus + d.gpus
    from unnest(v_keys, v_cores, v_gpus) as d (key, cores, gpus) where t.pk_layer = d.key;

    select array_agg(t.pk_job), array_agg(t.cores), array_agg(t.gpus) into v_keys, v_cores, v_gpus
    from (
        select l.pk_job, sum(d.cores) as cores, sum(d.gpus) as gpus
        from unnest(v_keys, v_cores, v_gpus) as d (pk_layer, cores, gpus)
        join layer as l on l.pk_layer = d.pk_layer
        group by l.pk_job
    ) as t;
    perform from job_resource where pk_job = any(v_keys) order by pk_job for no key update;
    update job_resource as t set int_cores = t.int_cores + d.cores, int_gpus = t.int_gpus + d.gpus
    from unnest(v_keys, v_cores, v_gpus) as d (key, cores, gpus) where t.pk_job = d.key;

    with owner as materialized (
        select j.pk_folder, j.pk_dept, j.pk_show, sum(d.cores) as cores, sum(d.gpus) as gpus
        from unnest(v_keys, v_cores, v_gpus) as d (pk_job, cores, gpus)
        join job as j on j.pk_job = d.pk_job
        group by j.pk_folder, j.pk_dept, j.pk_show
    ),
    folder_need as (
        select o.pk_folder, sum(o.cores) as cores, sum(o.gpus) as gpus from owner as o group by o.pk_folder
    ),
    folder_held as materialized (
        select t.pk_folder_resource, n.cores, n.gpus
        from folder_resource as t join folder_need as n on n.pk_folder = t.pk_folder
        order by t.pk_folder_resource for no key update of t
    ),
    folder_done as (
        update folder_resource as t set int_cores = t.int_cores + n.cores, int_gpus = t.int_gpus + n.gpus
        from folder_held as n where t.pk_folder_resource = n.pk_folder_resource
        returning t.pk_folder
    ),
    -- Reading folder_done makes it run before the points are locked.
    point_held as materialized (
        select t.pk_point, n.cores, n.gpus
        from point as t
        join (
            select o.pk_dept, o.pk_show, sum(o.cores) as cores, sum(o.gpus) as gpus
            from owner as o, (select count(*) from folder_done) as after_folders (n)
            group by o.pk_dept, o.pk_show
        ) as n on n.pk_dept = t.pk_dept and n.pk_show = t.pk_show
        order by t.pk_point for no key update of t
    )
    update point as t set int_cores = t.int_cores + n.cores, int_gpus = t.int_gpus + n.gpus
    from point_held as n where t.pk_point = n.pk_point;
end
$$;
comment on function maestro.charge_counters(text [], text [], integer [], integer []) is
    'Adds bookings (layer, host, core points, gpus) to subscription, layer_resource, job_resource, folder_resource and '
    'point, in this lock order.';
