-- judge_completions: which completions of a batch count, and what each makes of its frame.
-- Called by apply_completions. Locks what the batch will change and changes nothing.
--
-- The fence: a completion counts only if the proc that it names exists, holds the frame that it names, and the frame
-- is RUNNING. Of several for one run the first counts. Null if none does.
-- Locks, each sorted by key: proc, host, layer_stat, job_stat, frame. Errors: none of its own.
create or replace function maestro.judge_completions(p_ids bigint [], p_now timestamptz) returns maestro.drained []
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- A few thousand rows are joined by their keys; the tables are large and their statistics lag behind.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    -- Parallel: completions that count, and what their procs tell.
    v_ids bigint [];
    v_at text [];
    v_mem bigint [];
    v_layers text [];
    v_jobs text [];
    v_done maestro.drained [];
begin
    -- However a run ends that was killed for its memory, unless it was quicker: memory is why.
    if exists (select from maestro.memory_kill) then
        update maestro.completion as c set exit_status = 33
        where c.completion_id = any(p_ids) and c.exit_status <> 0
            and exists (select from maestro.memory_kill as k where k.pk_proc = c.pk_proc);
    end if;

    select
        array_agg(k.completion_id), array_agg(k.pk_host), array_agg(k.int_mem_reserved),
        array_agg(distinct k.pk_layer), array_agg(distinct k.pk_job)
    into v_ids, v_at, v_mem, v_layers, v_jobs
    from (
        select c.completion_id, p.pk_proc, p.pk_host, p.pk_layer, p.pk_job, p.int_mem_reserved
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
        perform from host where pk_host = any(v_at) order by pk_host for no key update;
        perform maestro.lock_states(v_layers, v_jobs);

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
                    c.*, a.pk_host, f.pk_layer, f.pk_job, j.pk_show, a.int_mem_reserved,
                    f.int_cores, f.int_gpus, f.int_retries, j.int_max_retries, j.b_autoeat,
                    l.int_timeout, l.int_timeout_llu, r.pk_limit_record, t.stopped_at,
                    coalesce(w.state, case when j.str_state = 'FINISHED' then 'STOPPED' end) as wish,
                    greatest(extract(epoch from t.stopped_at - f.ts_started), 1)::bigint as clock_seconds,
                    extract(epoch from t.stopped_at - c.llu_at)::double precision as llu_seconds
                from unnest(v_ids, v_at, v_mem) as a (completion_id, pk_host, int_mem_reserved)
                join maestro.completion as c on c.completion_id = a.completion_id
                join frame as f on f.pk_frame = c.pk_frame
                join layer as l on l.pk_layer = f.pk_layer
                join job as j on j.pk_job = f.pk_job
                left join maestro.frame_wish as w on w.pk_proc = c.pk_proc
                -- A limit may name the exit status by which its programs say that nothing was left for them.
                left join limit_record as r on r.int_exit_status = c.exit_status
                cross join lateral (
                    select greatest(least(p_now, c.received_at), f.ts_started) as stopped_at
                ) as t
                where f.str_state = 'RUNNING'
                order by f.pk_frame
                for no key update of f
            ) as b
        ) as k;
    end if;
    return v_done;
end
$$;
comment on function maestro.judge_completions(bigint [], timestamp with time zone) is
    'The completions among p_ids that count, each with the state and figures it leads to; null if there are none. Locks '
    'their procs, hosts, layer_stat, job_stat and frames.';
