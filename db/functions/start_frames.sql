-- start_frames: makes frames RUNNING, with a proc and a launch each, and takes what they reserve from their hosts.
-- Called by commit_plan, which holds the locks of hosts and frames. Result: the slots of the frames that started.
-- A run counts as a retry unless the one before it was no real failure (retry_charge).
-- Raises QM004 if a host has less idle than its frames take.
--
-- A function of its own, for its plans suit a batch of any size: each time a plan is made for one batch alone, as
-- commit_plan's are, every foreign key that the rows have is planned anew as well, row by row.
create or replace function maestro.start_frames(p_tick_id bigint, p_now timestamptz, p_starts maestro.start [])
returns integer []
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
set plan_cache_mode = auto
as $$
declare
    -- Keys of one batch share their first part: they arrive at the index in order, at its right edge.
    v_key constant text := left(gen_random_uuid()::text, 24);
    v_won integer [];
    v_hosts integer;
    v_changed integer;
begin
    -- The frames are locked, so their row addresses hold until the update: it needs no index. State and version are
    -- asked again all the same.
    with started as (
        update frame as f set
            str_state = 'RUNNING',
            str_host = s.host_name,
            int_cores = s.cores,
            int_mem_reserved = s.mem,
            int_gpus = s.gpus,
            int_gpu_mem_reserved = s.gpu_mem,
            ts_started = p_now,
            ts_updated = p_now,
            ts_stopped = null,
            int_retries = f.int_retries
                + case when f.int_exit_status = -1 then 0 else maestro.retry_charge(f.int_exit_status) end,
            int_version = f.int_version + 1
        from unnest(p_starts) as s
        where f.ctid = s.at and f.str_state = 'WAITING' and f.int_version = s.version
        returning
            f.pk_frame, f.pk_layer, f.pk_job, s.pk_show, s.pk_host, s.slot, s.cores, s.mem, s.gpus, s.gpu_mem
    ),
    booked as (
        insert into proc (
            pk_proc, pk_host, pk_show, pk_job, pk_layer, pk_frame,
            int_cores_reserved, int_mem_reserved, int_mem_pre_reserved, int_mem_used,
            int_gpus_reserved, int_gpu_mem_reserved, int_gpu_mem_pre_reserved,
            ts_ping, ts_booked, ts_dispatched
        )
        select
            v_key || lpad(to_hex(s.slot), 12, '0'), s.pk_host, s.pk_show, s.pk_job, s.pk_layer, s.pk_frame,
            s.cores, s.mem, s.mem, maestro.mem_used_at_start(),
            s.gpus, s.gpu_mem, s.gpu_mem,
            p_now, p_now, p_now
        from started as s
        returning pk_proc, pk_host, pk_frame
    ),
    outbox as (
        insert into maestro.launch (tick_id, pk_proc, pk_frame, pk_host, created_at)
        select p_tick_id, b.pk_proc, b.pk_frame, b.pk_host, p_now
        from booked as b
    ),
    taken as (
        select
            s.pk_host, sum(s.cores) as cores, sum(s.mem)::bigint as mem, sum(s.gpus) as gpus,
            sum(s.gpu_mem)::bigint as gpu_mem
        from started as s
        group by s.pk_host
    ),
    changed as (
        update host as h set
            int_cores_idle = h.int_cores_idle - t.cores,
            int_mem_idle = h.int_mem_idle - t.mem,
            int_gpus_idle = h.int_gpus_idle - t.gpus,
            int_gpu_mem_idle = h.int_gpu_mem_idle - t.gpu_mem
        from taken as t
        where h.pk_host = t.pk_host
            and h.int_cores_idle >= t.cores and h.int_mem_idle >= t.mem
            and h.int_gpus_idle >= t.gpus and h.int_gpu_mem_idle >= t.gpu_mem
        returning h.pk_host
    )
    select
        (select coalesce(array_agg(s.slot), '{}') from started as s),
        (select count(*) from taken), (select count(*) from changed)
    into v_won, v_hosts, v_changed;
    if v_changed <> v_hosts then
        raise exception using errcode = 'QM004', message = 'start_frames: a host locked by this tick changed under it';
    end if;
    return v_won;
end
$$;
comment on function maestro.start_frames(bigint, timestamp with time zone, maestro.start []) is
    'Starts locked frames: RUNNING, proc, launch and the hosts'' idle amounts. Returns the slots that started.';
