-- count_usage: adds finished runs to the memory maxima and usage counters of their layers, jobs and shows.
-- Called by apply_completions, once a run. A run counts as a success if it returned 0, whatever became of the frame.
-- Locks layer_mem, job_mem, layer_usage, job_usage, show_stats in this order. Errors: none of its own.
create or replace function maestro.count_usage(p_done maestro.drained []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
begin
    update layer_mem as m set
        int_max_rss = greatest(m.int_max_rss, g.max_rss),
        int_gpu_mem_max = greatest(m.int_gpu_mem_max, g.max_gpu_mem)
    from (
        select pk_layer, max(max_rss) as max_rss, max(max_gpu_mem) as max_gpu_mem from unnest(p_done) group by pk_layer
    ) as g
    where m.pk_layer = g.pk_layer and (m.int_max_rss < g.max_rss or m.int_gpu_mem_max < g.max_gpu_mem);

    update job_mem as m set
        int_max_rss = greatest(m.int_max_rss, g.max_rss),
        int_gpu_mem_max = greatest(m.int_gpu_mem_max, g.max_gpu_mem)
    from (
        select pk_job, max(max_rss) as max_rss, max(max_gpu_mem) as max_gpu_mem from unnest(p_done) group by pk_job
    ) as g
    where m.pk_job = g.pk_job and (m.int_max_rss < g.max_rss or m.int_gpu_mem_max < g.max_gpu_mem);

    -- int4 columns stop at their maximum rather than fail the batch.
    update layer_usage as u set
        int_core_time_success = u.int_core_time_success + g.core_success,
        int_core_time_fail = u.int_core_time_fail + g.core_fail,
        int_gpu_time_success = u.int_gpu_time_success + g.gpu_success,
        int_gpu_time_fail = u.int_gpu_time_fail + g.gpu_fail,
        int_clock_time_success = least(u.int_clock_time_success + g.clock_success, 2147483647),
        int_clock_time_fail = least(u.int_clock_time_fail + g.clock_fail, 2147483647),
        int_clock_time_high = least(greatest(u.int_clock_time_high, g.clock_high), 2147483647),
        int_clock_time_low = case
            when u.int_clock_time_low = 0 then coalesce(g.clock_low, 0)
            else least(u.int_clock_time_low, g.clock_low)
        end,
        int_frame_success_count = u.int_frame_success_count + g.successes,
        int_frame_fail_count = u.int_frame_fail_count + g.fails
    from (
        select
            pk_layer,
            coalesce(sum(core_seconds) filter (where success), 0) as core_success,
            coalesce(sum(core_seconds) filter (where not success), 0) as core_fail,
            coalesce(sum(gpu_seconds) filter (where success), 0) as gpu_success,
            coalesce(sum(gpu_seconds) filter (where not success), 0) as gpu_fail,
            coalesce(sum(clock_seconds) filter (where success), 0) as clock_success,
            coalesce(sum(clock_seconds) filter (where not success), 0) as clock_fail,
            max(clock_seconds) filter (where success) as clock_high,
            min(clock_seconds) filter (where success) as clock_low,
            count(*) filter (where success) as successes,
            count(*) filter (where not success) as fails
        from unnest(p_done) group by pk_layer
    ) as g
    where u.pk_layer = g.pk_layer;

    update job_usage as u set
        int_core_time_success = u.int_core_time_success + g.core_success,
        int_core_time_fail = u.int_core_time_fail + g.core_fail,
        int_gpu_time_success = u.int_gpu_time_success + g.gpu_success,
        int_gpu_time_fail = u.int_gpu_time_fail + g.gpu_fail,
        int_clock_time_success = least(u.int_clock_time_success + g.clock_success, 2147483647),
        int_clock_time_fail = least(u.int_clock_time_fail + g.clock_fail, 2147483647),
        int_clock_time_high = least(greatest(u.int_clock_time_high, g.clock_high), 2147483647),
        int_frame_success_count = u.int_frame_success_count + g.successes,
        int_frame_fail_count = u.int_frame_fail_count + g.fails
    from (
        select
            pk_job,
            coalesce(sum(core_seconds) filter (where success), 0) as core_success,
            coalesce(sum(core_seconds) filter (where not success), 0) as core_fail,
            coalesce(sum(gpu_seconds) filter (where success), 0) as gpu_success,
            coalesce(sum(gpu_seconds) filter (where not success), 0) as gpu_fail,
            coalesce(sum(clock_seconds) filter (where success), 0) as clock_success,
            coalesce(sum(clock_seconds) filter (where not success), 0) as clock_fail,
            max(clock_seconds) filter (where success) as clock_high,
            count(*) filter (where success) as successes,
            count(*) filter (where not success) as fails
        from unnest(p_done) group by pk_job
    ) as g
    where u.pk_job = g.pk_job;

    update show_stats as u set
        int_frame_success_count = u.int_frame_success_count + g.successes,
        int_frame_fail_count = u.int_frame_fail_count + g.fails
    from (
        select pk_show, count(*) filter (where success) as successes, count(*) filter (where not success) as fails
        from unnest(p_done) group by pk_show
    ) as g
    where u.pk_show = g.pk_show;
end
$$;
comment on function maestro.count_usage(maestro.drained []) is
    'Adds finished runs to layer_mem, job_mem, layer_usage, job_usage and show_stats, each row written once.';
