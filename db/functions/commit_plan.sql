-- commit_plan: books a plan, in one batch, under guards that hold even if the snapshot lied.
-- The tick's phase 8; called inside the tick's transaction, for the whole plan or, after an error, for parts of it.
--
-- p_layers, p_hosts: keys. p_slot_*: parallel arrays, one entry a frame to book in draw order: positions (from 1) in
-- p_layers and p_hosts, and what the frame reserves there (core points, KiB, gpus, KiB).
-- Result: {"committed": n, "dropped": {reason: n}, "lost": [slot numbers from 1]}; committed + dropped = slots.
-- A dropped slot's frame stays WAITING, untouched.
--
-- Locks, in OpenCue's order: hosts, layer_stat, job_stat, frames (SKIP LOCKED: a frame that somebody else holds is
-- left for the next tick), then the counters; each table sorted by key.
-- Raises what the tables' own guards raise (a burst or a job's maximum lowered since the snapshot).
create or replace function maestro.commit_plan(
    p_tick_id bigint,
    p_now timestamptz,
    p_layers text [],
    p_hosts text [],
    p_slot_layer integer [],
    p_slot_host integer [],
    p_slot_cores integer [],
    p_slot_mem bigint [],
    p_slot_gpus integer [],
    p_slot_gpu_mem bigint []
) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_slots integer := cardinality(p_slot_layer);
    v_full integer [];
    v_won integer [];
    v_host_gone integer;
    v_updated integer;
begin
    -- Hosts whose idle amounts do not cover the plan, or that closed since the snapshot, drop out whole.
    with need as (
        select
            s.host, sum(s.cores) as cores, sum(s.mem) as mem, sum(s.gpus) as gpus, sum(s.gpu_mem) as gpu_mem
        from unnest(p_slot_host, p_slot_cores, p_slot_mem, p_slot_gpus, p_slot_gpu_mem)
            as s (host, cores, mem, gpus, gpu_mem)
        group by s.host
    ),
    held as materialized (
        select
            k.host, h.str_lock_state, h.int_cores_idle, h.int_mem_idle, h.int_gpus_idle, h.int_gpu_mem_idle, h.pk_host
        from host as h
        join unnest(p_hosts) with ordinality as k (pk_host, host) on k.pk_host = h.pk_host
        order by h.pk_host
        for no key update of h
    )
    select array_agg(n.host) into v_full
    from need as n
    left join held as h on h.host = n.host
    left join host_stat as hs on hs.pk_host = h.pk_host
    where h.pk_host is null or h.str_lock_state <> 'OPEN' or hs.str_state is distinct from 'UP'
        or h.int_cores_idle < n.cores or h.int_mem_idle < n.mem
        or h.int_gpus_idle < n.gpus or h.int_gpu_mem_idle < n.gpu_mem;
    v_full := coalesce(v_full, '{}');

    perform from layer_stat as ls
    where ls.pk_layer = any(p_layers) order by ls.pk_layer for no key update;
    perform from job_stat as js
    where js.pk_job in (select l.pk_job from layer as l where l.pk_layer = any(p_layers))
    order by js.pk_job for no key update;

    with slot as materialized (
        select
            s.number, s.layer, s.host, s.cores, s.mem, s.gpus, s.gpu_mem,
            row_number() over (partition by s.layer order by s.number) as turn
        from unnest(p_slot_layer, p_slot_host, p_slot_cores, p_slot_mem, p_slot_gpus, p_slot_gpu_mem)
            with ordinality as s (layer, host, cores, mem, gpus, gpu_mem, number)
        where s.host <> all(v_full)
    ),
    wanted as materialized (
        select s.layer, p_layers[s.layer] as pk_layer, count(*) as frames from slot as s group by s.layer
    ),
    picked as materialized (
        select w.layer, f.pk_frame, f.at, f.int_version, row_number() over (partition by w.layer) as turn
        from wanted as w
        cross join lateral (
            select f.pk_frame, f.ctid as at, f.int_version
            from frame as f
            where f.pk_layer = w.pk_layer and f.str_state = 'WAITING'
            order by f.int_dispatch_order, f.int_layer_order
            limit w.frames
            for no key update skip locked
        ) as f
    ),
    -- The frames are locked, so their row addresses hold until the update: it needs no index. State and version are
    -- asked again all the same. A run counts as a retry unless the one before it was no real failure.
    started as (
        update frame as f set
            str_state = 'RUNNING',
            str_host = h.str_name,
            int_cores = s.cores,
            int_mem_reserved = s.mem,
            int_gpus = s.gpus,
            int_gpu_mem_reserved = s.gpu_mem,
            ts_started = p_now,
            ts_updated = p_now,
            ts_stopped = null,
            int_retries = f.int_retries + maestro.retry_charge(f.int_exit_status),
            int_version = f.int_version + 1
        from picked as p
        join slot as s on s.layer = p.layer and s.turn = p.turn
        join host as h on h.pk_host = p_hosts[s.host]
        where f.ctid = p.at and f.str_state = 'WAITING' and f.int_version = p.int_version
        returning f.pk_frame, f.pk_layer, f.pk_job, s.number, s.host, s.cores, s.mem, s.gpus, s.gpu_mem
    ),
    booked as (
        insert into proc (
            pk_proc, pk_host, pk_show, pk_job, pk_layer, pk_frame,
            int_cores_reserved, int_mem_reserved, int_mem_pre_reserved, int_mem_used,
            int_gpus_reserved, int_gpu_mem_reserved, int_gpu_mem_pre_reserved,
            ts_ping, ts_booked, ts_dispatched
        )
        select
            gen_random_uuid()::text, p_hosts[s.host], j.pk_show, s.pk_job, s.pk_layer, s.pk_frame,
            s.cores, s.mem, s.mem, maestro.mem_used_at_start(),
            s.gpus, s.gpu_mem, s.gpu_mem,
            p_now, p_now, p_now
        from started as s
        join job as j on j.pk_job = s.pk_job
        returning pk_proc, pk_host, pk_frame
    ),
    outbox as (
        insert into maestro.launch (tick_id, pk_proc, pk_frame, pk_host, created_at)
        select p_tick_id, b.pk_proc, b.pk_frame, b.pk_host, p_now
        from booked as b
    )
    select array_agg(s.number) into v_won from started as s;
    v_won := coalesce(v_won, '{}');

    update host as h set
        int_cores_idle = h.int_cores_idle - n.cores,
        int_mem_idle = h.int_mem_idle - n.mem,
        int_gpus_idle = h.int_gpus_idle - n.gpus,
        int_gpu_mem_idle = h.int_gpu_mem_idle - n.gpu_mem
    from (
        select
            p_hosts[p_slot_host[w.slot]] as pk_host, sum(p_slot_cores[w.slot]) as cores,
            sum(p_slot_mem[w.slot]) as mem, sum(p_slot_gpus[w.slot]) as gpus, sum(p_slot_gpu_mem[w.slot]) as gpu_mem
        from unnest(v_won) as w (slot)
        group by 1
    ) as n
    where h.pk_host = n.pk_host
        and h.int_cores_idle >= n.cores and h.int_mem_idle >= n.mem
        and h.int_gpus_idle >= n.gpus and h.int_gpu_mem_idle >= n.gpu_mem;
    get diagnostics v_updated = row_count;
    if v_updated <> (select count(distinct p_slot_host[w.slot]) from unnest(v_won) as w (slot)) then
        raise exception using errcode = 'QM004', message = 'commit_plan: a host locked by this tick changed under it';
    end if;

    perform maestro.charge_counters(
        (select array_agg(p_layers[p_slot_layer[w.slot]] order by w.slot) from unnest(v_won) as w (slot)),
        (select array_agg(p_hosts[p_slot_host[w.slot]] order by w.slot) from unnest(v_won) as w (slot)),
        (select array_agg(p_slot_cores[w.slot] order by w.slot) from unnest(v_won) as w (slot)),
        (select array_agg(p_slot_gpus[w.slot] order by w.slot) from unnest(v_won) as w (slot))
    );

    select count(*) into v_host_gone from unnest(p_slot_host) as s (host) where s.host = any(v_full);
    return jsonb_build_object(
        'committed', cardinality(v_won),
        'dropped', jsonb_strip_nulls(jsonb_build_object(
            'host changed', nullif(v_host_gone, 0),
            'frame taken', nullif(v_slots - v_host_gone - cardinality(v_won), 0)
        )),
        'lost', case when cardinality(v_won) < v_slots then (
            select jsonb_agg(n)
            from (select generate_series(1, v_slots) except select unnest(v_won)) as missing (n)
        ) else '[]' end
    );
end
$$;
comment on function maestro.commit_plan(
    bigint, timestamptz, text [], text [], integer [], integer [], integer [], bigint [], integer [], bigint []
) is
    'Books the slots of a plan under guards: {committed, dropped: {reason: n}, lost: [slot]}. Locks hosts, layer_stat, '
    'job_stat, frames (skip locked) and counters, each sorted by key.';
