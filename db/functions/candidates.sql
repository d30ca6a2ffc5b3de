-- candidates: every waiting layer, with the host groups that its gates allow and the gates that refuse it.
-- The tick's phase 5: one query a tick, whatever the number of groups. Locks nothing.
--
-- p_groups: the groups, an array of {id, pk_alloc, pk_facility, tags, os, thread_all, hosts (how many)}. p_now: the
-- tick's time. p_managed_only: weigh only shows with b_scheduler_managed.
-- Result, one row a layer with waiting frames in a PENDING job: what one frame asks (core points, KiB, gpus), what
-- job and folder still allow (points and gpus; null: no cap), what its frames were seen to use, and
--   gates           what refuses the layer outright, wherever it runs
--   kind            a number shared by layers that match groups alike; it determines the three below
--   groups          the groups that it may use
--   misfits         what rules some hosts out: tags, facility, os, thread mode, no subscription
--   misfit_hosts    how many hosts each of them rules out
-- A layer that may use no group has every misfit that rules all hosts out among its gates.
-- Caps are only read here: the planner spends them. Shares of shows come from show_shares.
create or replace function maestro.candidates(p_groups jsonb, p_now timestamptz, p_managed_only boolean)
returns table (
    pk_layer text,
    pk_job text,
    pk_show text,
    pk_folder text,
    pk_facility text,
    os text,
    tags text,
    priority integer,
    job_started_s double precision,
    dispatch_order integer,
    waiting integer,
    running integer,
    completed integer,
    cores_min bigint,
    cores_max integer,
    mem_min bigint,
    gpus_min integer,
    gpu_mem_min bigint,
    threadable boolean,
    selfish boolean,
    median_rss bigint,
    samples integer,
    job_cores_free bigint,
    job_gpus_free integer,
    folder_cores_free integer,
    folder_gpus_free integer,
    gates text [],
    kind bigint,
    groups integer [],
    misfits text [],
    misfit_hosts bigint []
)
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    with grp as materialized (
        select g.*, string_to_array(g.os, ',') as os_list
        from jsonb_to_recordset(p_groups) as g (
            id integer, pk_alloc text, pk_facility text, tags text, os text, thread_all boolean, hosts integer
        )
    ),
    selfish as materialized (
        select array_agg(trim(s)) as services
        from unnest(string_to_array(maestro.setting('selfish_services'), ',')) as s
        where trim(s) <> ''
    ),
    waiting as materialized (
        select
            l.pk_layer, l.pk_job, j.pk_show, j.pk_folder, jr.int_priority,
            extract(epoch from j.ts_started)::double precision as job_started_s, l.int_dispatch_order,
            ls.int_waiting_count, ls.int_running_count, ls.int_succeeded_count,
            l.int_cores_min, l.int_cores_max, l.int_mem_min, l.int_gpus_min, l.int_gpu_mem_min,
            l.b_threadable, l.str_tags, coalesce(j.str_os, '') as str_os, j.pk_facility,
            case when s.services is null then false
                else string_to_array(replace(l.str_services, ' ', ''), ',') && s.services
            end as selfish,
            jr.int_max_cores - jr.int_cores as job_cores_free, jr.int_max_gpus - jr.int_gpus as job_gpus_free,
            case when fr.int_max_cores >= 0 then fr.int_max_cores - fr.int_cores end as folder_cores_free,
            case when fr.int_max_gpus >= 0 then fr.int_max_gpus - fr.int_gpus end as folder_gpus_free,
            case when j.b_paused or not j.b_auto_book or l.ts_start_after > p_now then array_remove(array[
                case when j.b_paused then 'job paused' end,
                case when not j.b_auto_book then 'booking off for the job' end,
                case when l.ts_start_after > p_now then 'start after' end
            ], null) else '{}' end as gates,
            coalesce(lm.median_rss, 0) as median_rss, coalesce(lm.samples, 0) as samples
        from layer_stat as ls
        join layer as l on l.pk_layer = ls.pk_layer
        join job as j on j.pk_job = l.pk_job
        join job_resource as jr on jr.pk_job = j.pk_job
        join folder_resource as fr on fr.pk_folder = j.pk_folder
        cross join selfish as s
        left join maestro.layer_memory as lm on lm.pk_layer = l.pk_layer
        where ls.int_waiting_count > 0 and j.str_state = 'PENDING'
            and (not p_managed_only or exists (
                select from show as s where s.pk_show = j.pk_show and s.b_scheduler_managed
            ))
    ),
    -- Layers differ in few of the things that groups are matched by, so the match is made once per kind of layer.
    kind as materialized (
        select k.*, row_number() over () as id, maestro.tag_pattern(k.str_tags) as pattern
        from (select distinct w.str_tags, w.str_os, w.pk_facility, w.b_threadable, w.pk_show from waiting as w) as k
    ),
    tag_match as materialized (
        select p.str_tags, t.tags
        from (select distinct k.str_tags, k.pattern from kind as k where k.pattern is not null) as p
        join (select distinct g.tags from grp as g) as t on t.tags ~ p.pattern
    ),
    fit as materialized (
        select
            k.id, g.id as grp, coalesce(g.hosts, 1) as hosts, tm.tags is not null as tags_fit,
            k.pk_facility = g.pk_facility as facility_fits,
            k.str_os = '' or k.str_os = any(g.os_list) as os_fits,
            k.b_threadable or not g.thread_all as threads_fit,
            coalesce(s.int_burst, 0) > 0 as subscribed
        from kind as k
        cross join grp as g
        left join tag_match as tm on tm.str_tags = k.str_tags and tm.tags = g.tags
        left join subscription as s on s.pk_show = k.pk_show and s.pk_alloc = g.pk_alloc
    ),
    counted as materialized (
        select
            k.*, coalesce(array_agg(f.grp order by f.grp) filter (
                where f.tags_fit and f.facility_fits and f.os_fits and f.threads_fit and f.subscribed
            ), '{}') as groups,
            case when k.pattern is null then 'malformed tags' else 'tags' end as tags_gate,
            coalesce(sum(f.hosts), 0) as hosts,
            coalesce(sum(f.hosts) filter (where not f.tags_fit), 0) as no_tags,
            coalesce(sum(f.hosts) filter (where not f.facility_fits), 0) as no_facility,
            coalesce(sum(f.hosts) filter (where not f.os_fits), 0) as no_os,
            coalesce(sum(f.hosts) filter (where not f.threads_fit), 0) as no_threads,
            coalesce(sum(f.hosts) filter (where not f.subscribed), 0) as no_subscription
        from kind as k
        left join fit as f on f.id = k.id
        group by k.id, k.str_tags, k.str_os, k.pk_facility, k.b_threadable, k.pk_show, k.pattern
    ),
    matched as materialized (
        select
            c.id, c.str_tags, c.str_os, c.pk_facility, c.b_threadable, c.pk_show, c.groups,
            array_agg(m.gate order by m.place) filter (where m.hosts > 0) as misfits,
            array_agg(m.hosts order by m.place) filter (where m.hosts > 0) as misfit_hosts,
            case when cardinality(c.groups) > 0 then '{}'
                else coalesce(array_agg(m.gate order by m.place) filter (where m.hosts = c.hosts), '{}')
            end as gates
        from counted as c
        cross join lateral (values
            (1, c.tags_gate, c.no_tags), (2, 'facility', c.no_facility), (3, 'os', c.no_os),
            (4, 'thread mode', c.no_threads), (5, 'no subscription', c.no_subscription)
        ) as m (place, gate, hosts)
        group by c.id, c.str_tags, c.str_os, c.pk_facility, c.b_threadable, c.pk_show, c.groups, c.hosts
    )
    select
        w.pk_layer, w.pk_job, w.pk_show, w.pk_folder, w.pk_facility, w.str_os, w.str_tags,
        w.int_priority, w.job_started_s, w.int_dispatch_order,
        w.int_waiting_count, w.int_running_count, w.int_succeeded_count,
        w.int_cores_min, w.int_cores_max, w.int_mem_min, w.int_gpus_min, w.int_gpu_mem_min, w.b_threadable, w.selfish,
        w.median_rss, w.samples,
        w.job_cores_free, w.job_gpus_free, w.folder_cores_free, w.folder_gpus_free,
        case when cardinality(m.gates) = 0 then w.gates else w.gates || m.gates end,
        m.id, m.groups, m.misfits, m.misfit_hosts
    from waiting as w
    join matched as m on m.str_tags = w.str_tags and m.str_os = w.str_os and m.pk_facility = w.pk_facility
        and m.b_threadable = w.b_threadable and m.pk_show = w.pk_show
    order by w.pk_layer collate "C";
$$;
comment on function maestro.candidates(jsonb, timestamptz, boolean) is
    'Waiting layers with what they ask, what caps leave them, the host groups (ids of p_groups) that every gate allows, '
    'the gates that refuse them and the hosts that each misfit rules out. Locks nothing.';
