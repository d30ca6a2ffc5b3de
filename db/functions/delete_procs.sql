-- delete_procs: deletes procs whose rows and hosts the caller has locked, and gives back what they hold.
-- Called by release_procs and apply_completions; everybody else calls release_procs.
-- The refund is what each proc row holds when it is deleted: a reservation that grew meanwhile comes back whole.
-- Each counter row is written once. Wishes for the procs' runs go with them.
-- Locks subscription, layer_resource, job_resource, folder_resource, point, in this order and each sorted by key.
-- Result: procs deleted. Errors: none of its own.
create or replace function maestro.delete_procs(p_procs text []) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_gone maestro.released [];
begin
    with gone as (
        delete from proc where pk_proc = any(p_procs) returning *
    )
    select array_agg(row(
        g.pk_host, g.pk_show, g.pk_job, g.pk_layer, g.b_local,
        g.int_cores_reserved, g.int_mem_reserved, g.int_gpus_reserved, g.int_gpu_mem_reserved
    )::maestro.released) into v_gone
    from gone as g;
    if v_gone is null then
        return 0;
    end if;
    delete from maestro.frame_wish where pk_proc = any(p_procs);

    update host as h set
        int_cores_idle = h.int_cores_idle + g.cores,
        int_mem_idle = h.int_mem_idle + g.mem,
        int_gpus_idle = h.int_gpus_idle + g.gpus,
        int_gpu_mem_idle = h.int_gpu_mem_idle + g.gpu_mem
    from (
        select pk_host, sum(cores) as cores, sum(mem) as mem, sum(gpus) as gpus, sum(gpu_mem) as gpu_mem
        from unnest(v_gone) group by pk_host
    ) as g
    where h.pk_host = g.pk_host;

    with owed as materialized (
        select s.pk_subscription, g.cores, g.gpus
        from (
            select r.pk_show, h.pk_alloc, sum(r.cores) as cores, sum(r.gpus) as gpus
            from unnest(v_gone) as r join host as h on h.pk_host = r.pk_host
            where not r.b_local
            group by r.pk_show, h.pk_alloc
        ) as g
        join subscription as s on s.pk_show = g.pk_show and s.pk_alloc = g.pk_alloc
        order by s.pk_subscription for no key update of s
    )
    update subscription as s set int_cores = s.int_cores - o.cores, int_gpus = s.int_gpus - o.gpus
    from owed as o where s.pk_subscription = o.pk_subscription;

    with owed as materialized (
        select s.pk_layer_resource, g.cores, g.gpus
        from (
            select pk_layer, sum(cores) as cores, sum(gpus) as gpus from unnest(v_gone) group by pk_layer
        ) as g
        join layer_resource as s on s.pk_layer = g.pk_layer
        order by s.pk_layer for no key update of s
    )
    update layer_resource as s set int_cores = s.int_cores - o.cores, int_gpus = s.int_gpus - o.gpus
    from owed as o where s.pk_layer_resource = o.pk_layer_resource;

    with owed as materialized (
        select s.pk_job_resource, g.*
        from (
            select
                pk_job,
                coalesce(sum(cores) filter (where not b_local), 0) as cores,
                coalesce(sum(gpus) filter (where not b_local), 0) as gpus,
                coalesce(sum(cores) filter (where b_local), 0) as local_cores,
                coalesce(sum(gpus) filter (where b_local), 0) as local_gpus
            from unnest(v_gone) group by pk_job
        ) as g
        join job_resource as s on s.pk_job = g.pk_job
        order by s.pk_job for no key update of s
    )
    update job_resource as s set
        int_cores = s.int_cores - o.cores,
        int_gpus = s.int_gpus - o.gpus,
        int_local_cores = s.int_local_cores - o.local_cores,
        int_local_gpus = s.int_local_gpus - o.local_gpus
    from owed as o where s.pk_job_resource = o.pk_job_resource;

    with owed as materialized (
        select s.pk_folder_resource, g.cores, g.gpus
        from (
            select j.pk_folder, sum(r.cores) as cores, sum(r.gpus) as gpus
            from unnest(v_gone) as r join job as j on j.pk_job = r.pk_job
            where not r.b_local
            group by j.pk_folder
        ) as g
        join folder_resource as s on s.pk_folder = g.pk_folder
        order by s.pk_folder_resource for no key update of s
    )
    update folder_resource as s set int_cores = s.int_cores - o.cores, int_gpus = s.int_gpus - o.gpus
    from owed as o where s.pk_folder_resource = o.pk_folder_resource;

    with owed as materialized (
        select s.pk_point, g.cores, g.gpus
        from (
            select j.pk_dept, j.pk_show, sum(r.cores) as cores, sum(r.gpus) as gpus
            from unnest(v_gone) as r join job as j on j.pk_job = r.pk_job
            where not r.b_local
            group by j.pk_dept, j.pk_show
        ) as g
        join point as s on s.pk_dept = g.pk_dept and s.pk_show = g.pk_show
        order by s.pk_point for no key update of s
    )
    update point as s set int_cores = s.int_cores - o.cores, int_gpus = s.int_gpus - o.gpus
    from owed as o where s.pk_point = o.pk_point;

    if exists (select from unnest(v_gone) as r where r.b_local) then
        update host_local as s set
            int_cores_idle = s.int_cores_idle + g.cores,
            int_mem_idle = s.int_mem_idle + g.mem,
            int_gpus_idle = s.int_gpus_idle + g.gpus,
            int_gpu_mem_idle = s.int_gpu_mem_idle + g.gpu_mem
        from (
            select
                pk_host, pk_job, sum(cores) as cores, sum(mem) as mem, sum(gpus) as gpus, sum(gpu_mem) as gpu_mem
            from unnest(v_gone) where b_local group by pk_host, pk_job
        ) as g
        where s.pk_host = g.pk_host and s.pk_job = g.pk_job;
    end if;
    return cardinality(v_gone);
end
$$;
comment on function maestro.delete_procs(text []) is
    'Deletes the locked procs p_procs and refunds host, subscription, layer_resource, job_resource, folder_resource and '
    'point from the deleted rows; returns how many there were.';
