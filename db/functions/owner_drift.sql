-- owner_drift: counters of subscriptions, layers, jobs, folders, points and limits that do not say what the procs (for
-- limits: the reported tokens) say, with what would be right. Jobs that are finished are passed over: nothing is
-- planned by their counters. Called by repair_drift. Reads every proc once; locks nothing.
-- cores and gpus are core points and whole gpus; for limit_usage they are tokens and hosts.
create or replace function maestro.owner_drift()
returns table (what text, id text, cores bigint, gpus bigint, local_cores bigint, local_gpus bigint)
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    -- Sums in float8, exact far beyond any farm and much faster than numeric.
    with held as materialized (
        select
            p.pk_layer, p.pk_job, p.pk_show, h.pk_alloc,
            sum(case when p.b_local then 0 else p.int_cores_reserved::float8 end) as cores,
            sum(case when p.b_local then 0 else p.int_gpus_reserved::float8 end) as gpus,
            sum(case when p.b_local then p.int_cores_reserved::float8 else 0 end) as local_cores,
            sum(case when p.b_local then p.int_gpus_reserved::float8 else 0 end) as local_gpus
        from proc as p
        join host as h on h.pk_host = p.pk_host
        group by p.pk_layer, p.pk_job, p.pk_show, h.pk_alloc
    ),
    per_job as materialized (
        select
            j.pk_job, j.pk_show, j.pk_folder, j.pk_dept, j.str_state,
            coalesce(sum(d.cores), 0) as cores, coalesce(sum(d.gpus), 0) as gpus,
            coalesce(sum(d.local_cores), 0) as local_cores, coalesce(sum(d.local_gpus), 0) as local_gpus
        from job as j
        left join held as d on d.pk_job = j.pk_job
        where j.str_state <> 'FINISHED' or d.pk_job is not null
        group by j.pk_job
    )
    select 'subscription', s.pk_subscription::text, e.cores::bigint, e.gpus::bigint, 0::bigint, 0::bigint
    from subscription as s
    left join (
        select d.pk_show, d.pk_alloc, sum(d.cores) as cores, sum(d.gpus) as gpus from held as d group by 1, 2
    ) as d on d.pk_show = s.pk_show and d.pk_alloc = s.pk_alloc
    cross join lateral (select coalesce(d.cores, 0) as cores, coalesce(d.gpus, 0) as gpus) as e
    where s.int_cores <> e.cores or s.int_gpus <> e.gpus
    union all
    select 'layer_resource', s.pk_layer, e.cores::bigint, e.gpus::bigint, 0, 0
    from layer_resource as s
    join job as j on j.pk_job = s.pk_job and j.str_state <> 'FINISHED'
    left join (
        select d.pk_layer, sum(d.cores + d.local_cores) as cores, sum(d.gpus + d.local_gpus) as gpus from held as d group by 1
    ) as d on d.pk_layer = s.pk_layer
    cross join lateral (select coalesce(d.cores, 0) as cores, coalesce(d.gpus, 0) as gpus) as e
    where s.int_cores <> e.cores or s.int_gpus <> e.gpus
    union all
    select 'job_resource', s.pk_job, e.cores::bigint, e.gpus::bigint, e.local_cores::bigint, e.local_gpus::bigint
    from job_resource as s
    join per_job as e on e.pk_job = s.pk_job and e.str_state <> 'FINISHED'
    where s.int_cores <> e.cores or s.int_gpus <> e.gpus
        or s.int_local_cores <> e.local_cores or s.int_local_gpus <> e.local_gpus
    union all
    select 'folder_resource', s.pk_folder_resource, e.cores::bigint, e.gpus::bigint, 0, 0
    from folder_resource as s
    left join (
        select d.pk_folder, sum(d.cores) as cores, sum(d.gpus) as gpus from per_job as d group by 1
    ) as d on d.pk_folder = s.pk_folder
    cross join lateral (select coalesce(d.cores, 0) as cores, coalesce(d.gpus, 0) as gpus) as e
    where s.int_cores <> e.cores or s.int_gpus <> e.gpus
    union all
    select 'point', s.pk_point, e.cores::bigint, e.gpus::bigint, 0, 0
    from point as s
    left join (
        select d.pk_show, d.pk_dept, sum(d.cores) as cores, sum(d.gpus) as gpus from per_job as d group by 1, 2
    ) as d on d.pk_show = s.pk_show and d.pk_dept = s.pk_dept
    cross join lateral (select coalesce(d.cores, 0) as cores, coalesce(d.gpus, 0) as gpus) as e
    where s.int_cores <> e.cores or s.int_gpus <> e.gpus
    union all
    select 'limit_usage', s.pk_limit_record, e.tokens, e.hosts, 0, 0
    from limit_usage as s
    cross join lateral (
        select coalesce(sum(lh.int_tokens), 0) as tokens, count(*) as hosts
        from limit_host as lh where lh.pk_limit_record = s.pk_limit_record
    ) as e
    where s.int_settled_usage <> e.tokens or s.int_settled_hosts <> e.hosts;
$$;
comment on function maestro.owner_drift() is
    'Counters of owners that do not agree with the procs, and what would be right (core points, whole gpus; for '
    'limit_usage tokens and hosts). No rows on a healthy farm. Locks nothing.';
