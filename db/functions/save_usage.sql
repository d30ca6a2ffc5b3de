-- save_usage: memory use of running frames, as their hosts report it.
-- Called by report_status for runs whose procs it has locked and which hold the frames reported for them.
-- The frame's version stays: use is no change of state. Locks frame, layer_mem, job_mem with skip locked.
create or replace function maestro.save_usage(p_runs maestro.run_report [], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
begin
    -- A frame is a sample of its layer's memory once it is seen, and again when its peak has grown by a sixteenth.
    insert into maestro.peak_sample (pk_layer, pk_frame, peak_rss)
    select p.pk_layer, p.pk_frame, greatest(r.max_rss, r.rss)
    from unnest(p_runs) as r
    join proc as p on p.pk_proc = r.pk_proc and p.pk_frame = r.pk_frame
    where greatest(r.max_rss, r.rss) > p.int_mem_max_used + p.int_mem_max_used / 16;

    update proc as p set
        int_mem_used = r.rss,
        int_mem_max_used = greatest(p.int_mem_max_used, r.max_rss),
        int_virt_used = r.vsize,
        int_virt_max_used = greatest(p.int_virt_max_used, r.max_vsize),
        int_pss_used = r.pss,
        int_pss_max_used = greatest(p.int_pss_max_used, r.max_pss),
        int_swap_used = r.swap,
        int_gpu_mem_used = r.gpu_mem,
        int_gpu_mem_max_used = greatest(p.int_gpu_mem_max_used, r.max_gpu_mem),
        ts_ping = p_now
    from unnest(p_runs) as r
    where p.pk_proc = r.pk_proc and p.pk_frame = r.pk_frame;

    with held as materialized (
        select f.pk_frame, r as run
        from unnest(p_runs) as r
        join frame as f on f.pk_frame = r.pk_frame
        where f.str_state = 'RUNNING'
        order by f.pk_frame
        for no key update of f skip locked
    )
    update frame as f set
        int_mem_used = (k.run).rss,
        int_mem_max_used = (k.run).max_rss,
        int_pss_used = (k.run).pss,
        int_pss_max_used = (k.run).max_pss,
        int_gpu_mem_used = (k.run).gpu_mem,
        int_gpu_mem_max_used = (k.run).max_gpu_mem,
        ts_llu = coalesce((k.run).llu_at, f.ts_llu),
        ts_updated = p_now
    from held as k
    where f.pk_frame = k.pk_frame;

    with peak as materialized (
        select
            p.pk_layer, p.pk_job, max(r.max_rss) as rss, max(r.max_vsize) as vsize, max(r.max_gpu_mem) as gpu_mem,
            max(r.max_pss) as pss
        from unnest(p_runs) as r join proc as p on p.pk_proc = r.pk_proc
        group by p.pk_layer, p.pk_job
    ),
    layers as materialized (
        select m.pk_layer_mem, k.rss, k.vsize, k.gpu_mem, k.pss
        from peak as k join layer_mem as m on m.pk_layer = k.pk_layer
        where k.rss > m.int_max_rss or k.vsize > m.int_max_vss or k.gpu_mem > m.int_gpu_mem_max
            or k.pss > m.int_max_pss
        order by m.pk_layer_mem for no key update of m skip locked
    ),
    jobs as materialized (
        select m.pk_job_mem, k.rss, k.vsize, k.gpu_mem, k.pss
        from (
            select
                pk_job, max(rss) as rss, max(vsize) as vsize, max(gpu_mem) as gpu_mem, max(pss) as pss
            from peak group by pk_job
        ) as k
        join job_mem as m on m.pk_job = k.pk_job
        where k.rss > m.int_max_rss or k.vsize > m.int_max_vss or k.gpu_mem > m.int_gpu_mem_max
            or k.pss > m.int_max_pss
        order by m.pk_job_mem for no key update of m skip locked
    ),
    of_layers as (
        update layer_mem as m set
            int_max_rss = greatest(m.int_max_rss, k.rss), int_max_vss = greatest(m.int_max_vss, k.vsize),
            int_gpu_mem_max = greatest(m.int_gpu_mem_max, k.gpu_mem), int_max_pss = greatest(m.int_max_pss, k.pss)
        from layers as k where m.pk_layer_mem = k.pk_layer_mem
    )
    update job_mem as m set
        int_max_rss = greatest(m.int_max_rss, k.rss), int_max_vss = greatest(m.int_max_vss, k.vsize),
        int_gpu_mem_max = greatest(m.int_gpu_mem_max, k.gpu_mem), int_max_pss = greatest(m.int_max_pss, k.pss)
    from jobs as k where m.pk_job_mem = k.pk_job_mem;
end
$$;
comment on function maestro.save_usage(maestro.run_report [], timestamp with time zone) is
    'Stores the memory use (KiB) of runs whose procs the caller has locked in proc, frame, layer_mem and job_mem.';
