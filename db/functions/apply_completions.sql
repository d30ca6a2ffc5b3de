-- apply_completions: what a batch of finished runs changes, each table written once.
-- Called by drain, in a subtransaction of its own.
--
-- The fence: a completion counts only if the proc that it names exists, holds the frame that it names, and the frame
-- is RUNNING. Everything else (sent twice, late, of a superseded booking) is stale: it is counted and changes no row.
-- Usage is counted by what the run returned, not by the state that follows.
-- Locks, each sorted by key: proc, host, layer_stat, job_stat, frame; then as count_usage, release_procs, adapt_layers,
-- leave_warm, learn_memory and settle.
-- Result: {"drained", "stale", "finished_jobs"}. Errors: whatever a table's own guards raise.
create or replace function maestro.apply_completions(p_ids bigint [], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_ids bigint [];
    v_procs text [];
    v_frames text [];
    v_done maestro.drained [];
    v_settled text [];
    v_finished integer := 0;
begin
    select array_agg(k.completion_id), array_agg(k.pk_proc), array_agg(k.pk_frame) into v_ids, v_procs, v_frames
    from (
        select c.completion_id, p.pk_proc, p.pk_frame
        from (
            select distinct on (i.pk_proc, i.pk_frame) i.completion_id, i.pk_proc, i.pk_frame
            from maestro.completion as i
            where i.completion_id = any(p_ids)
            order by i.pk_proc, i.pk_frame, i.completion_id
        ) as c
        join proc as p on p.pk_proc = c.pk_proc and p.pk_frame = c.pk_frame
        order by p.pk_proc
        for update of p
    ) as k;

    if v_ids is not null then
        perform from host as h
        where h.pk_host in (select p.pk_host from proc as p where p.pk_proc = any(v_procs))
        order by h.pk_host for no key update;
        perform maestro.lock_frames(v_frames);

        select array_agg(row(
            k.completion_id, k.pk_proc, k.pk_host, k.pk_frame, k.pk_layer, k.pk_job, k.pk_show, k.state,
            case
                when k.state = 'EATEN' and k.wish = 'EATEN' then 506
                when k.state = 'WAITING' and k.wish is not null then 500
                when k.state = 'WAITING' and (k.nimby_killed or k.pk_limit_record is not null) then 286
                when k.exit_signal in (33, 256) then k.exit_signal
                else k.exit_status
            end,
            k.exit_status = 0,
            k.exit_status in (33, 137) or k.exit_signal = 33,
            k.nimby_locked, k.int_mem_reserved, k.max_rss_kib, k.max_gpu_mem_kib, k.clock_seconds,
            greatest(k.clock_seconds * k.int_cores / 100, 1), k.clock_seconds * k.int_gpus, k.stopped_at,
            k.pk_limit_record
        )::maestro.drained) into v_done
        from (
            select
                b.*,
                maestro.completed_state(
                    b.exit_status, b.exit_signal, b.wish, b.nimby_locked, b.int_retries, b.int_max_retries,
                    b.b_autoeat, b.pk_limit_record is not null, b.run_time_seconds, b.int_timeout, b.int_timeout_llu,
                    b.llu_seconds
                ) as state,
                b.nimby_locked and b.exit_signal = 15 as nimby_killed
            from (
                select
                    c.*, p.pk_host, f.pk_layer, f.pk_job, j.pk_show, p.int_mem_reserved,
                    f.int_cores, f.int_gpus, f.int_retries, j.int_max_retries, j.b_autoeat,
                    l.int_timeout, l.int_timeout_llu, r.pk_limit_record, t.stopped_at,
                    coalesce(w.state, case when j.str_state = 'FINISHED' then 'STOPPED' end) as wish,
                    greatest(extract(epoch from t.stopped_at - f.ts_started), 1)::bigint as clock_seconds,
                    extract(epoch from t.stopped_at - c.llu_at)::double precision as llu_seconds
                from maestro.completion as c
                join proc as p on p.pk_proc = c.pk_proc
                join frame as f on f.pk_frame = c.pk_frame
                join layer as l on l.pk_layer = f.pk_layer
                join job as j on j.pk_job = f.pk_job
                left join maestro.frame_wish as w on w.pk_proc = c.pk_proc
                -- A limit may name the exit status by which its programs say that nothing was left for them.
                left join limit_record as r on r.int_exit_status = c.exit_status
                cross join lateral (
                    select greatest(least(p_now, c.received_at), f.ts_started) as stopped_at
                ) as t
                where c.completion_id = any(v_ids) and f.str_state = 'RUNNING'
            ) as b
        ) as k;
    end if;

    if v_done is not null then
        update frame as f set
            str_state = d.state,
            int_exit_status = d.exit_status,
            ts_stopped = d.stopped_at,
            ts_updated = p_now,
            int_mem_max_used = d.max_rss,
            int_gpu_mem_max_used = d.max_gpu_mem,
            int_total_past_core_time = least(f.int_total_past_core_time + d.core_seconds, 2147483647),
            int_total_past_gpu_time = least(f.int_total_past_gpu_time + d.gpu_seconds, 2147483647),
            int_version = f.int_version + 1
        from unnest(v_done) as d
        where f.pk_frame = d.pk_frame and f.str_state = 'RUNNING';

        perform maestro.count_usage(v_done);
        perform maestro.release_procs(array(select d.pk_proc from unnest(v_done) as d));
        perform maestro.adapt_layers(v_done, p_now);
        perform maestro.leave_warm(v_done);
        perform maestro.learn_memory(array_agg(d.pk_layer), array_agg(d.pk_frame), array_agg(d.max_rss))
        from unnest(v_done) as d where d.success or d.memory_failure;

        update host as h set str_lock_state = 'NIMBY_LOCKED'
        where h.str_lock_state = 'OPEN'
            and h.pk_host in (select d.pk_host from unnest(v_done) as d where d.nimby_locked);

        select array_agg(d.pk_frame) into v_settled
        from unnest(v_done) as d where d.state in ('SUCCEEDED', 'EATEN');
        if v_settled is not null then
            v_finished := maestro.settle(
                maestro.releasing_frames(v_settled),
                array(select distinct d.pk_layer from unnest(v_done) as d where d.state in ('SUCCEEDED', 'EATEN')),
                p_now
            );
        end if;
    end if;

    delete from maestro.completion where completion_id = any(p_ids);
    return jsonb_build_object(
        'drained', coalesce(cardinality(v_done), 0),
        'stale', cardinality(p_ids) - coalesce(cardinality(v_done), 0),
        'finished_jobs', v_finished
    );
end
$$;
comment on function maestro.apply_completions(bigint [], timestamp with time zone) is
    'Applies the completions p_ids of the inbox and removes them: {"drained", "stale", "finished_jobs"}. A completion '
    'whose proc does not hold its RUNNING frame is stale and changes nothing.';
