-- candidates: every waiting layer, with the host groups that its gates allow and the gates that refuse it.
-- The tick's phase 5: one query a tick, whatever the number of groups. Locks nothing.
--
-- p_groups: the groups, an array of {id, pk_alloc, pk_facility, tags, os, thread_all, hosts (how many)}. p_now: the
-- tick's time. p_managed_only: weigh only shows with b_scheduler_managed.
-- Result: one row of arrays, for thousands of rows would cost twice the time on their way into the planner. Parallel
-- arrays tell of layers with waiting frames in a PENDING job, ordered by key: what one frame asks (core points, KiB,
-- gpus), what its frames were seen to use, the numbers (from 1) of its job and its kind, and
--   gates           what refuses the layer itself, wherever it runs, ';' between them; null: nothing does
-- The arrays that begin with job_ and folder_ tell of the jobs: their owners, and what job and folder still allow
-- (points and gpus; null: no cap).
-- kinds is a list. Layers of one kind match groups alike, so a kind tells
--   tags, os, pk_facility, threadable   what they are matched by
--   groups          the groups that its layers may use
--   misfits         what rules some hosts out: tags, facility, os, thread mode, no subscription
--   misfit_hosts    how many hosts each of them rules out
--   gates           where it may use no group, the misfits that rule all hosts out
-- Caps are only read here: the planner spends them. Shares of shows come from show_shares.
-- PL/pgSQL, as all that a tick asks for at length: its plans are kept, a function in SQL is planned at each call.
create or replace function maestro.candidates(
    p_groups jsonb, p_now timestamptz, p_managed_only boolean
)
returns table (
    pk_layer text [],
    job integer [],
    kind integer [],
    dispatch_order bigint [],
    waiting bigint [],
    running bigint [],
    completed bigint [],
    cores_min bigint [],
    cores_max integer [],
    mem_min bigint [],
    gpus_min bigint [],
    gpu_mem_min bigint [],
    selfish boolean [],
    median_rss bigint [],
    samples integer [],
    gates text [],
    job_key text [],
    job_show text [],
    job_folder text [],
    job_priority integer [],
    job_started_s double precision [],
    job_cores_free bigint [],
    job_gpus_free integer [],
    folder_cores_free integer [],
    folder_gpus_free integer [],
    kinds jsonb
)
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    return query
    with grp as materialized (
        select
            g.id, g.tags, coalesce(g.hosts, 1) as hosts, g.pk_alloc, g.pk_facility, g.os, g.thread_all,
            dense_rank() over (order by g.pk_alloc, g.pk_facility, g.os, g.thread_all) as class
        from jsonb_to_recordset(p_groups) as g (
            id integer, pk_alloc text, pk_facility text, tags text, os text, thread_all boolean, hosts integer
        )
    ),
    selfish as materialized (
        select array_agg(trim(s)) as services
        from unnest(string_to_array(maestro.setting('selfish_services'), ',')) as s
        where trim(s) <> ''
    ),
    job as materialized (
        select
            j.pk_job, j.pk_show, j.pk_folder, jr.int_priority,
            extract(epoch from j.ts_started)::double precision as started_s,
            jr.int_max_cores - jr.int_cores as cores_free, jr.int_max_gpus - jr.int_gpus as gpus_free,
            case when fr.int_max_cores >= 0 then fr.int_max_cores - fr.int_cores end as folder_cores_free,
            case when fr.int_max_gpus >= 0 then fr.int_max_gpus - fr.int_gpus end as folder_gpus_free,
            concat_ws(
                ';', case when j.b_paused then 'job paused' end,
                case when not j.b_auto_book then 'booking off for the job' end
            ) as gates,
            coalesce(j.str_os, '') as str_os, j.pk_facility,
            row_number() over ()::integer as number,
            -- Jobs that match groups alike, as far as it is the job that decides.
            dense_rank() over (order by j.pk_show, j.pk_facility, coalesce(j.str_os, '')) as owner
        from job as j
        join job_resource as jr on jr.pk_job = j.pk_job
        join folder_resource as fr on fr.pk_folder = j.pk_folder
        where j.str_state = 'PENDING'
            and (not p_managed_only or exists (
                select from show as s where s.pk_show = j.pk_show and s.b_scheduler_managed
            ))
    ),
    waiting as materialized (
        select
            l.pk_layer, j.number, j.owner, l.int_dispatch_order,
            ls.int_waiting_count, ls.int_running_count, ls.int_succeeded_count,
            l.int_cores_min, l.int_cores_max, l.int_mem_min, l.int_gpus_min, l.int_gpu_mem_min,
            l.b_threadable, l.str_tags,
            s.services is not null and string_to_array(replace(l.str_services, ' ', ''), ',') && s.services as selfish,
            coalesce(lm.median_rss, 0) as median_rss, coalesce(lm.samples, 0) as samples,
            nullif(concat_ws(';', nullif(j.gates, ''), case when l.ts_start_after > p_now then 'start after' end), '')
                as gates
        from layer_stat as ls
        join layer as l on l.pk_layer = ls.pk_layer
        join job as j on j.pk_job = l.pk_job
        cross join selfish as s
        left join maestro.layer_memory as lm on lm.pk_layer = l.pk_layer
        where ls.int_waiting_count > 0
    ),
    tags as materialized (
        select w.str_tags, maestro.tag_words(w.str_tags) as words, maestro.tag_pattern(w.str_tags) as pattern
        from (select distinct w.str_tags from waiting as w) as w
    ),
    -- Layers differ in few of the things that groups are matched by, so the match is made once per kind of layer.
    kind as materialized (
        select
            d.str_tags, d.b_threadable, d.owner, o.str_os, o.pk_facility, o.pk_show,
            row_number() over ()::integer as id, t.pattern
        from (select distinct w.str_tags, w.b_threadable, w.owner from waiting as w) as d
        join (select distinct j.owner, j.str_os, j.pk_facility, j.pk_show from job as j) as o on o.owner = d.owner
        join tags as t on t.str_tags = d.str_tags
    ),
    group_tags as materialized (
        select distinct g.tags from grp as g
    ),
    -- Tags that are words meet by equality. The few others pattern by pattern ("offset" keeps the order): each is
    -- compiled once, where the other way round each look would.
    tag_match as materialized (
        select distinct t.str_tags, g.tags
        from tags as t
        cross join lateral unnest(t.words) as w (word)
        join (
            select g.tags, w.word
            from group_tags as g
            cross join lateral unnest(string_to_array(lower(g.tags), ' ')) as w (word)
        ) as g on g.word = w.word
        union all
        select p.str_tags, t.tags
        from (select t.str_tags, t.pattern from tags as t where t.words is null and t.pattern is not null) as p
        cross join lateral (select g.tags from group_tags as g where g.tags ~ p.pattern offset 0) as t
    ),
    -- Groups are many by their tags alone. All else that they are matched by makes few classes of them, and few kinds of
    -- kinds: a thousand kinds and a thousand groups are not held against each other one by one.
    class as materialized (
        select
            g.class, g.pk_alloc, g.pk_facility, string_to_array(g.os, ',') as os_list, g.thread_all,
            sum(g.hosts) as hosts
        from grp as g
        group by g.class, g.pk_alloc, g.pk_facility, g.os, g.thread_all
    ),
    fit as materialized (
        select
            k.owner, k.b_threadable, c.class, c.hosts,
            k.pk_facility = c.pk_facility as facility_fits,
            k.str_os = '' or k.str_os = any(c.os_list) as os_fits,
            k.b_threadable or not c.thread_all as threads_fit,
            coalesce(s.int_burst, 0) > 0 as subscribed
        from (select distinct k.owner, k.b_threadable, k.str_os, k.pk_facility, k.pk_show from kind as k) as k
        cross join class as c
        left join subscription as s on s.pk_show = k.pk_show and s.pk_alloc = c.pk_alloc
    ),
    counted as materialized (
        select
            f.owner, f.b_threadable, sum(f.hosts) as hosts,
            sum(f.hosts) filter (where not f.facility_fits) as no_facility,
            sum(f.hosts) filter (where not f.os_fits) as no_os,
            sum(f.hosts) filter (where not f.threads_fit) as no_threads,
            sum(f.hosts) filter (where not f.subscribed) as no_subscription
        from fit as f
        group by f.owner, f.b_threadable
    ),
    tagged as materialized (
        select
            k.id, sum(g.hosts) as hosts, array_agg(g.id order by g.id) filter (
                where f.facility_fits and f.os_fits and f.threads_fit and f.subscribed
            ) as groups
        from kind as k
        join tag_match as m on m.str_tags = k.str_tags
        join grp as g on g.tags = m.tags
        join fit as f on f.owner = k.owner and f.b_threadable = k.b_threadable and f.class = g.class
        group by k.id
    ),
    matched as materialized (
        select
            k.id, k.str_tags, k.str_os, k.pk_facility, k.b_threadable,
            coalesce(t.groups, '{}') as groups, coalesce(m.misfits, '{}') as misfits,
            coalesce(m.misfit_hosts, '{}') as misfit_hosts,
            case when t.groups is null then coalesce(m.gates, '{}') else '{}' end as gates
        from kind as k
        left join counted as c on c.owner = k.owner and c.b_threadable = k.b_threadable
        left join tagged as t on t.id = k.id
        cross join lateral (
            select
                array_agg(v.gate order by v.place) filter (where v.hosts > 0) as misfits,
                array_agg(v.hosts order by v.place) filter (where v.hosts > 0) as misfit_hosts,
                array_agg(v.gate order by v.place) filter (where v.hosts = coalesce(c.hosts, 0)) as gates
            from (values
                (
                    1, case when k.pattern is null then 'malformed tags' else 'tags' end,
                    coalesce(c.hosts, 0) - coalesce(t.hosts, 0)
                ),
                (2, 'facility', coalesce(c.no_facility, 0)), (3, 'os', coalesce(c.no_os, 0)),
                (4, 'thread mode', coalesce(c.no_threads, 0)),
                (5, 'no subscription', coalesce(c.no_subscription, 0))
            ) as v (place, gate, hosts)
        ) as m
    ),
    layers as (
        select
            array_agg(w.pk_layer::text) as pk_layer, array_agg(w.number) as job, array_agg(w.id) as kind,
            array_agg(w.int_dispatch_order) as dispatch_order, array_agg(w.int_waiting_count) as waiting,
            array_agg(w.int_running_count) as running, array_agg(w.int_succeeded_count) as completed,
            array_agg(w.int_cores_min) as cores_min, array_agg(w.int_cores_max) as cores_max,
            array_agg(w.int_mem_min) as mem_min, array_agg(w.int_gpus_min) as gpus_min,
            array_agg(w.int_gpu_mem_min) as gpu_mem_min, array_agg(w.selfish) as selfish,
            array_agg(w.median_rss) as median_rss, array_agg(w.samples) as samples, array_agg(w.gates) as gates
        from (
            select w.*, k.id
            from waiting as w
            join kind as k on k.owner = w.owner and k.b_threadable = w.b_threadable and k.str_tags = w.str_tags
            order by w.pk_layer collate "C"
        ) as w
    ),
    jobs as (
        select
            array_agg(j.pk_job::text) as job_key, array_agg(j.pk_show::text) as job_show,
            array_agg(j.pk_folder::text) as job_folder, array_agg(j.int_priority) as job_priority,
            array_agg(j.started_s) as job_started_s, array_agg(j.cores_free) as job_cores_free,
            array_agg(j.gpus_free) as job_gpus_free, array_agg(j.folder_cores_free) as folder_cores_free,
            array_agg(j.folder_gpus_free) as folder_gpus_free
        from (select j.* from job as j order by j.number) as j
    )
    select l.*, j.*, (
        select jsonb_agg(jsonb_build_object(
            'tags', m.str_tags, 'os', m.str_os, 'pk_facility', m.pk_facility, 'threadable', m.b_threadable,
            'groups', m.groups, 'misfits', m.misfits, 'misfit_hosts', m.misfit_hosts, 'gates', m.gates
        ) order by m.id)
        from matched as m
    )
    from layers as l
    cross join jobs as j;
end
$$;
comment on function maestro.candidates(jsonb, timestamptz, boolean) is
    'Waiting layers with what they ask, what caps leave their jobs, the host groups (ids of p_groups) that every gate '
    'allows, the gates that refuse them and the hosts that each misfit rules out. One row of arrays. Locks nothing.';
