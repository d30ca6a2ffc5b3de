-- drain_history: writes frame_history from the queue that the trigger on frame fills.
-- Part of the sweep, a little each second so that no tick waits for it; whoever calls ticks may call it between them,
-- in a transaction of its own, to keep up with a busy farm. Two callers never work together: the second returns 0.
-- Events of a frame follow each other in the queue: S opens a row, E closes it, X (the launch was undone) removes it.
-- A start and its end in one batch become one row at once. At most p_limit events a call. Runs of jobs without a
-- history row are passed over.
-- Locks: an advisory lock of its own, queue rows (skip locked), frame_history rows. Result: events applied.
create or replace function maestro.drain_history(p_limit integer default 20000) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Events are joined by key to tables whose statistics lag behind.
set enable_mergejoin = off
set enable_hashjoin = off
set enable_seqscan = off
as $$
declare
    v_events frame_history_queue [];
begin
    -- Ends must find their starts, so batches follow each other. The bytes of "MaestroH".
    if not pg_try_advisory_xact_lock(x'4d61657374726f48'::bigint) then
        return 0;
    end if;
    with taken as (
        delete from frame_history_queue
        where id = any(array(
            select q.id from frame_history_queue as q order by q.id limit p_limit for update skip locked
        ))
        returning frame_history_queue as event
    )
    select array_agg(t.event) into v_events from taken as t;
    if v_events is null then
        return 0;
    end if;

    -- Ends whose start came in an earlier batch.
    with ordered as materialized (
        select e.*, lag(e.str_event) over (partition by e.pk_frame order by e.id) as before
        from unnest(v_events) as e
    ),
    removed as (
        delete from frame_history as h using ordered as o
        where o.str_event = 'X' and o.before is distinct from 'S'
            and h.pk_frame = o.pk_frame and h.int_ts_stopped = 0
    )
    update frame_history as h set
        int_ts_stopped = o.int_ts,
        int_mem_max_used = o.int_mem_max_used,
        int_gpu_mem_max_used = o.int_gpu_mem_max_used,
        int_exit_status = greatest(least(o.int_exit_status, 32767), -32768),
        int_checkpoint_count = o.int_checkpoint_count
    from ordered as o
    where o.str_event = 'E' and o.before is distinct from 'S'
        and h.pk_frame = o.pk_frame and h.int_ts_stopped = 0;

    -- Starts, with their end if it is here too.
    insert into frame_history (
        pk_frame, pk_layer, pk_job, str_name, str_state, int_mem_reserved, int_cores, str_host, pk_alloc,
        int_ts_started, int_gpus, int_gpu_mem_reserved, dt_last_modified,
        int_ts_stopped, int_mem_max_used, int_gpu_mem_max_used, int_exit_status, int_checkpoint_count
    )
    select
        o.pk_frame, o.pk_layer, o.pk_job, o.str_name, 'RUNNING', o.int_mem_reserved, o.int_cores,
        left(o.str_host, 64), o.pk_alloc, o.int_ts, o.int_gpus, o.int_gpu_mem_reserved, current_date,
        coalesce(o.stopped, 0), coalesce(o.mem_max, 0), coalesce(o.gpu_mem_max, 0),
        case when o.exit_status is null then -1 else greatest(least(o.exit_status, 32767), -32768) end, coalesce(o.checkpoints, 0)
    from (
        select
            e.*, lead(e.str_event) over w as after, lead(e.int_ts) over w as stopped,
            lead(e.int_mem_max_used) over w as mem_max, lead(e.int_gpu_mem_max_used) over w as gpu_mem_max,
            lead(e.int_exit_status) over w as exit_status, lead(e.int_checkpoint_count) over w as checkpoints
        from unnest(v_events) as e
        window w as (partition by e.pk_frame order by e.id)
    ) as o
    where o.str_event = 'S' and o.after is distinct from 'X'
        and exists (select from job_history as j where j.pk_job = o.pk_job)
        and exists (select from layer_history as l where l.pk_layer = o.pk_layer);
    return cardinality(v_events);
end
$$;
comment on function maestro.drain_history(integer) is
    'Applies up to p_limit events of frame_history_queue to frame_history; returns how many.';
