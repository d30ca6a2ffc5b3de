-- commit_plan: books a plan, in one batch, under guards that hold even if the snapshot lied.
-- The tick's phase 8; called inside the tick's transaction, for the whole plan or, after an error, for parts of it.
--
-- p_layers, p_hosts: keys. p_slot_*: parallel arrays, one entry a frame to book in draw order: positions (from 1) in
-- p_layers and p_hosts, and what the frame reserves there (core points, KiB, gpus, KiB). A layer with frames that ask
-- for memory of their own (frame_memory) stands once more in p_layers for each such ask; p_asks says which, KiB, by
-- position in p_layers: 0 for the layer's other frames. So no frame ever runs with less than it asks for.
-- Result: {"committed": n, "dropped": {reason: n}, "lost": [slot numbers from 1]}; committed + dropped = slots.
-- A dropped slot's frame stays WAITING, untouched. Dropped are: slots of hosts that changed, of layers that may not
-- start any more (paused, start-after), slots that limits have no room for, and those whose frame somebody else holds.
--
-- Locks, in OpenCue's order: hosts, layer_stat, job_stat, limits, frames (SKIP LOCKED: a frame that somebody else holds
-- is left for the next tick), then the counters; each table sorted by key.
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
    p_slot_gpu_mem bigint [],
    p_asks bigint [] default null
) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
-- The arrays' lengths decide which joins are cheap; a plan kept for others could loop over all pairs of slots. A plan
-- made for these very arrays finds an element of text by walking the array, so keys are joined in, never subscripted.
set plan_cache_mode = force_custom_plan
as $$
declare
    v_slots constant integer := cardinality(p_slot_layer);
    v_unchecked constant boolean := cardinality(p_slot_layer) >= maestro.large_batch() and maestro.is_standalone();
    -- By position in p_hosts and p_layers.
    v_host_name text [];
    v_host_alloc text [];
    v_layer_job text [];
    v_layer_show text [];
    v_asks constant boolean := exists (select from maestro.frame_memory);
    v_asks_since constant timestamptz
        := p_now - make_interval(hours => maestro.setting('frame_memory_hours')::integer);
    v_full integer [];
    v_shut integer [];
    v_over integer [];
    v_starts maestro.start [];
    v_won integer [];
    v_passed text [];
    v_changed integer;
    v_held integer;
    v_limited integer;
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
        select h.pk_host, h.str_name, h.pk_alloc, h.str_lock_state,
            h.int_cores_idle, h.int_mem_idle, h.int_gpus_idle, h.int_gpu_mem_idle
        from host as h
        where h.pk_host = any(p_hosts)
        order by h.pk_host
        for no key update
    )
    select
        array_agg(h.str_name order by k.host), array_agg(h.pk_alloc order by k.host),
        coalesce(array_agg(k.host) filter (where
            h.pk_host is null or h.str_lock_state <> 'OPEN' or hs.str_state is distinct from 'UP'
            or h.int_cores_idle < n.cores or h.int_mem_idle < n.mem
            or h.int_gpus_idle < n.gpus or h.int_gpu_mem_idle < n.gpu_mem
        ), '{}')
    into v_host_name, v_host_alloc, v_full
    from unnest(p_hosts) with ordinality as k (pk_host, host)
    left join need as n on n.host = k.host
    left join held as h on h.pk_host = k.pk_host
    left join host_stat as hs on hs.pk_host = k.pk_host;

    perform from layer_stat as ls
    where ls.pk_layer = any(p_layers) order by ls.pk_layer for no key update;

    select
        array_agg(l.pk_job order by k.layer), array_agg(j.pk_show order by k.layer),
        coalesce(array_agg(k.layer) filter (where
            j.str_state is distinct from 'PENDING' or j.b_paused or l.ts_start_after > p_now
        ), '{}')
    into v_layer_job, v_layer_show, v_shut
    from unnest(p_layers) with ordinality as k (pk_layer, layer)
    left join layer as l on l.pk_layer = k.pk_layer
    left join job as j on j.pk_job = l.pk_job;

    perform from job_stat as js
    where js.pk_job = any(v_layer_job) order by js.pk_job for no key update;

    v_over := maestro.trim_limits(p_now, p_layers, p_hosts, p_slot_layer, p_slot_host);

    -- Foreign keys are checked row by row: those of proc look up frames and hosts that this transaction holds locked,
    -- and every counter that the drain has changed already is checked again. No key changes here, so a large batch goes
    -- without the checks. Not beside a Cuebot, whose own triggers would be silenced too (standalone's fire always); and
    -- not in small batches, for the switch drops cached plans.
    if v_unchecked then
        perform set_config('session_replication_role', 'replica', true);
    end if;

    with slot as materialized (
        select
            s.number, s.layer, h.pk_host, h.str_name, s.cores, s.mem, s.gpus, s.gpu_mem,
            row_number() over (partition by s.layer order by s.number) as turn
        from unnest(p_slot_layer, p_slot_host, p_slot_cores, p_slot_mem, p_slot_gpus, p_slot_gpu_mem)
            with ordinality as s (layer, host, cores, mem, gpus, gpu_mem, number)
        join unnest(p_hosts, v_host_name) with ordinality as h (pk_host, str_name, host) on h.host = s.host
        where s.host <> all(v_full) and s.layer <> all(v_shut) and s.number <> all(v_over)
    ),
    wanted as materialized (
        select
            w.layer, l.pk_layer, l.pk_show, w.frames, coalesce(m.first_order, -1) as first_order, w.ask,
            case when v_asks then array(
                select k.pk_frame
                from maestro.frame_memory as k
                join layer as y on y.pk_layer = k.pk_layer
                where k.pk_layer = l.pk_layer and k.updated_at > v_asks_since
                    and case when w.ask > 0 then k.mem = w.ask else k.mem > least(w.mem, y.int_mem_min) end
            ) else '{}' end as asking
        from (
            select s.layer, count(*) as frames, min(s.mem) as mem, coalesce(p_asks[s.layer], 0) as ask
            from slot as s group by s.layer
        ) as w
        join unnest(p_layers, v_layer_show) with ordinality as l (pk_layer, pk_show, layer) on l.layer = w.layer
        left join maestro.layer_mark as m on m.pk_layer = l.pk_layer
    ),
    picked as materialized (
        select
            w.layer, w.pk_layer, w.pk_show, w.first_order, f.at, f.int_version, f.int_dispatch_order,
            row_number() over (partition by w.layer order by f.int_dispatch_order, f.int_layer_order) as turn
        from wanted as w
        cross join lateral (
            select f.ctid as at, f.int_version, f.int_dispatch_order, f.int_layer_order
            from frame as f
            where f.pk_layer = w.pk_layer and f.int_dispatch_order >= w.first_order and f.str_state = 'WAITING'
                and (w.ask > 0) = (f.pk_frame = any(w.asking))
            order by f.int_dispatch_order, f.int_layer_order
            limit w.frames
            for no key update skip locked
        ) as f
    )
    select
        array_agg((
            p.at, p.int_version, s.number, p.pk_show, s.pk_host, s.str_name, s.cores, s.mem, s.gpus, s.gpu_mem
        )::maestro.start order by s.number),
        (
            -- Layers whose reading passed many frames that wait no more.
            select array_agg(l.pk_layer)
            from (
                select g.pk_layer, min(g.int_dispatch_order) - min(g.first_order) as passed
                from picked as g group by g.pk_layer
            ) as l
            where l.passed > maestro.mark_slack()
        )
    into v_starts, v_passed
    from picked as p
    join slot as s on s.layer = p.layer and s.turn = p.turn;

    v_won := maestro.start_frames(p_tick_id, p_now, v_starts);

    perform maestro.charge_counters(
        array_agg(c.pk_show), array_agg(c.pk_alloc), array_agg(c.pk_layer), array_agg(c.pk_job),
        array_agg(c.cores), array_agg(c.gpus)
    )
    from (
        select l.pk_show, h.pk_alloc, l.pk_layer, l.pk_job, sum(s.cores) as cores, sum(s.gpus) as gpus
        from (
            select p_slot_layer[w.slot], p_slot_host[w.slot], p_slot_cores[w.slot], p_slot_gpus[w.slot]
            from unnest(v_won) as w (slot)
        ) as s (layer, host, cores, gpus)
        join unnest(p_layers, v_layer_show, v_layer_job) with ordinality as l (pk_layer, pk_show, pk_job, layer)
            on l.layer = s.layer
        join unnest(v_host_alloc) with ordinality as h (pk_alloc, host) on h.host = s.host
        group by l.pk_show, h.pk_alloc, l.pk_layer, l.pk_job
    ) as c;

    if v_passed is not null then
        perform maestro.raise_marks(v_passed);
    end if;
    if v_unchecked then
        perform set_config('session_replication_role', 'origin', true);
    end if;

    select
        count(*) filter (where s.host = any(v_full)),
        count(*) filter (where s.host <> all(v_full) and s.layer = any(v_shut)),
        count(*) filter (where s.host <> all(v_full) and s.layer <> all(v_shut) and s.number = any(v_over))
    into v_changed, v_held, v_limited
    from unnest(p_slot_layer, p_slot_host) with ordinality as s (layer, host, number);
    return jsonb_build_object(
        'committed', cardinality(v_won),
        'dropped', jsonb_strip_nulls(jsonb_build_object(
            'host changed', nullif(v_changed, 0),
            'layer held', nullif(v_held, 0),
            'limit', nullif(v_limited, 0),
            'frame taken', nullif(v_slots - v_changed - v_held - v_limited - cardinality(v_won), 0)
        )),
        'lost', case when cardinality(v_won) < v_slots then (
            select jsonb_agg(n order by n)
            from (select generate_series(1, v_slots) except select unnest(v_won)) as missing (n)
        ) else '[]' end
    );
end
$$;
comment on function maestro.commit_plan(
    bigint, timestamptz, text [], text [], integer [], integer [], integer [], bigint [], integer [], bigint [],
    bigint []
) is
    'Books the slots of a plan under guards: {committed, dropped: {reason: n}, lost: [slot]}. Locks hosts, layer_stat, '
    'job_stat, frames (skip locked) and counters, each sorted by key.';
