-- apply_completions: what a batch of finished runs changes, each table written once.
-- Called by drain, in a subtransaction of its own.
--
-- What judge_completions does not let through (sent twice, late, of a superseded booking) is stale: it is counted and
-- changes no row.
-- Usage is counted by what the run returned, not by the state that follows.
-- Locks as judge_completions, count_usage, delete_procs, adapt_layers, leave_warm, learn_memory and settle, in this
-- order. Result: {"drained", "stale", "finished_jobs"}. Errors: whatever a table's own guards raise.
create or replace function maestro.apply_completions(p_ids bigint [], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_done maestro.drained [];
    v_only_success constant boolean := maestro.setting('depend_satisfy_only_on_frame_success')::boolean;
    v_releasing text [];
    v_settled text [];
    v_finished integer := 0;
begin
    v_done := maestro.judge_completions(p_ids, p_now);
    if v_done is not null then
        with changed as (
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
            where f.pk_frame = d.pk_frame and f.str_state = 'RUNNING'
            returning f.pk_frame, f.pk_layer, f.str_state
        )
        select
            array_agg(c.pk_frame) filter (where c.str_state = 'SUCCEEDED' or not v_only_success),
            array_agg(distinct c.pk_layer)
        into v_releasing, v_settled
        from changed as c where c.str_state in ('SUCCEEDED', 'EATEN');

        perform maestro.count_usage(v_done);
        perform maestro.delete_procs(array(select d.pk_proc from unnest(v_done) as d));
        perform maestro.adapt_layers(v_done, p_now);
        perform maestro.leave_warm(v_done);
        perform maestro.learn_memory(array_agg(d.pk_layer), array_agg(d.pk_frame), array_agg(d.max_rss))
        from unnest(v_done) as d where d.success or d.memory_failure;

        update host as h set str_lock_state = 'NIMBY_LOCKED'
        where h.str_lock_state = 'OPEN'
            and h.pk_host in (select d.pk_host from unnest(v_done) as d where d.nimby_locked);

        if v_settled is not null then
            v_finished := maestro.settle(v_releasing, v_settled, p_now);
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
