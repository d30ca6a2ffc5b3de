-- check_accounting: every counter that does not say what the rows behind it say. Empty on a healthy farm, always.
-- For tests, operators and the sweep of counters; reads everything once, changes nothing.
--
-- host: idle + reserved by its procs = total, for cores, memory, gpus and gpu memory.
-- subscription, job_resource, layer_resource, folder_resource, point: what the procs hold. Local procs count for their
-- host, layer and the job's local columns only.
-- layer_stat, job_stat: frames by state. Jobs in STARTUP and frames in SETUP are not counted yet.
create or replace function maestro.check_accounting()
returns table (what text, id text, counter text, expected bigint, actual bigint)
language sql stable
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
    with held as materialized (
        select
            p.pk_host, p.pk_show, p.pk_job, p.pk_layer, p.b_local, h.pk_alloc, j.pk_folder, j.pk_dept,
            p.int_cores_reserved as cores, p.int_mem_reserved as mem,
            p.int_gpus_reserved as gpus, p.int_gpu_mem_reserved as gpu_mem
        from proc as p
        join host as h on h.pk_host = p.pk_host
        left join job as j on j.pk_job = p.pk_job
    ),
    counted as (
        select
            f.pk_layer, f.pk_job, count(*) as total,
            count(*) filter (where f.str_state = 'WAITING') as waiting,
            count(*) filter (where f.str_state = 'RUNNING') as running,
            count(*) filter (where f.str_state = 'DEAD') as dead,
            count(*) filter (where f.str_state = 'DEPEND') as depend,
            count(*) filter (where f.str_state = 'EATEN') as eaten,
            count(*) filter (where f.str_state = 'SUCCEEDED') as succeeded,
            count(*) filter (where f.str_state = 'CHECKPOINT') as checkpoint
        from frame as f
        join job as j on j.pk_job = f.pk_job and j.str_state <> 'STARTUP'
        where f.str_state <> 'SETUP'
        group by f.pk_layer, f.pk_job
    ),
    checked (what, id, counter, expected, actual) as (
        select 'host', h.pk_host, c.counter, c.total, c.idle + c.reserved
        from host as h
        left join (
            select pk_host, sum(cores) as cores, sum(mem) as mem, sum(gpus) as gpus, sum(gpu_mem) as gpu_mem
            from held group by pk_host
        ) as p on p.pk_host = h.pk_host
        cross join lateral (values
            ('cores', h.int_cores, h.int_cores_idle, coalesce(p.cores, 0)),
            ('mem', h.int_mem, h.int_mem_idle, coalesce(p.mem, 0)),
            ('gpus', h.int_gpus, h.int_gpus_idle, coalesce(p.gpus, 0)),
            ('gpu_mem', h.int_gpu_mem, h.int_gpu_mem_idle, coalesce(p.gpu_mem, 0))
        ) as c (counter, total, idle, reserved)
        union all
        select 'subscription', s.pk_subscription, c.counter, c.expected, c.actual
        from subscription as s
        left join (
            select pk_show, pk_alloc, sum(cores) as cores, sum(gpus) as gpus
            from held where not b_local group by pk_show, pk_alloc
        ) as p on p.pk_show = s.pk_show and p.pk_alloc = s.pk_alloc
        cross join lateral (values
            ('cores', coalesce(p.cores, 0), s.int_cores), ('gpus', coalesce(p.gpus, 0), s.int_gpus)
        ) as c (counter, expected, actual)
        union all
        select 'job_resource', s.pk_job, c.counter, c.expected, c.actual
        from job_resource as s
        left join (
            select
                pk_job,
                sum(cores) filter (where not b_local) as cores, sum(gpus) filter (where not b_local) as gpus,
                sum(cores) filter (where b_local) as local_cores, sum(gpus) filter (where b_local) as local_gpus
            from held group by pk_job
        ) as p on p.pk_job = s.pk_job
        cross join lateral (values
            ('cores', coalesce(p.cores, 0), s.int_cores), ('gpus', coalesce(p.gpus, 0), s.int_gpus),
            ('local_cores', coalesce(p.local_cores, 0), s.int_local_cores),
            ('local_gpus', coalesce(p.local_gpus, 0), s.int_local_gpus)
        ) as c (counter, expected, actual)
        union all
        select 'layer_resource', s.pk_layer, c.counter, c.expected, c.actual
        from layer_resource as s
        left join (
            select pk_layer, sum(cores) as cores, sum(gpus) as gpus from held group by pk_layer
        ) as p on p.pk_layer = s.pk_layer
        cross join lateral (values
            ('cores', coalesce(p.cores, 0), s.int_cores), ('gpus', coalesce(p.gpus, 0), s.int_gpus)
        ) as c (counter, expected, actual)
        union all
        select 'folder_resource', s.pk_folder, c.counter, c.expected, c.actual
        from folder_resource as s
        left join (
            select pk_folder, sum(cores) as cores, sum(gpus) as gpus
            from held where not b_local group by pk_folder
        ) as p on p.pk_folder = s.pk_folder
        cross join lateral (values
            ('cores', coalesce(p.cores, 0), s.int_cores), ('gpus', coalesce(p.gpus, 0), s.int_gpus)
        ) as c (counter, expected, actual)
        union all
        select 'point', s.pk_point, c.counter, c.expected, c.actual
        from point as s
        left join (
            select pk_show, pk_dept, sum(cores) as cores, sum(gpus) as gpus
            from held where not b_local group by pk_show, pk_dept
        ) as p on p.pk_show = s.pk_show and p.pk_dept = s.pk_dept
        cross join lateral (values
            ('cores', coalesce(p.cores, 0), s.int_cores), ('gpus', coalesce(p.gpus, 0), s.int_gpus)
        ) as c (counter, expected, actual)
        union all
        select 'layer_stat', s.pk_layer, c.counter, coalesce(c.expected, 0), c.actual
        from layer_stat as s
        join job as j on j.pk_job = s.pk_job and j.str_state <> 'STARTUP'
        left join counted as f on f.pk_layer = s.pk_layer
        cross join lateral (values
            ('total', f.total, s.int_total_count), ('waiting', f.waiting, s.int_waiting_count),
            ('running', f.running, s.int_running_count), ('dead', f.dead, s.int_dead_count),
            ('depend', f.depend, s.int_depend_count), ('eaten', f.eaten, s.int_eaten_count),
            ('succeeded', f.succeeded, s.int_succeeded_count), ('checkpoint', f.checkpoint, s.int_checkpoint_count)
        ) as c (counter, expected, actual)
        union all
        select 'job_stat', s.pk_job, c.counter, coalesce(c.expected, 0), c.actual
        from job_stat as s
        join job as j on j.pk_job = s.pk_job and j.str_state <> 'STARTUP'
        left join (
            select
                pk_job, sum(waiting) as waiting, sum(running) as running, sum(dead) as dead, sum(depend) as depend,
                sum(eaten) as eaten, sum(succeeded) as succeeded, sum(checkpoint) as checkpoint
            from counted group by pk_job
        ) as f on f.pk_job = s.pk_job
        cross join lateral (values
            ('waiting', f.waiting, s.int_waiting_count), ('running', f.running, s.int_running_count),
            ('dead', f.dead, s.int_dead_count), ('depend', f.depend, s.int_depend_count),
            ('eaten', f.eaten, s.int_eaten_count), ('succeeded', f.succeeded, s.int_succeeded_count),
            ('checkpoint', f.checkpoint, s.int_checkpoint_count)
        ) as c (counter, expected, actual)
    )
    select c.what, c.id, c.counter, c.expected::bigint, c.actual::bigint
    from checked as c
    where c.expected <> c.actual
    order by c.what, c.id, c.counter;
$$;
comment on function maestro.check_accounting() is
    'Counters that do not agree with the procs and frames behind them: what, id, counter, expected, actual (core points, '
    'KiB, whole gpus, frames). For a host: expected is the total, actual is idle + reserved. No rows: all is right.';
