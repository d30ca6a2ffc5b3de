-- depends: 0001_tables
--
-- What OpenCue's triggers do, written as statement-level triggers where a statement touches many rows: a fill books
-- 19,000 frames in one update, and a function call for each would cost more than the rest of the tick.
--
-- Rules for these functions:
--  - a before-row trigger has its whole test in WHEN, so that a row which is not concerned costs no function call;
--  - counters are summed and each row is written once a statement, layer_stat before job_stat, sorted by key, rows
--    locked first (the lock order everyone keeps);
--  - a statement that joins the old rows with the new is EXECUTEd: a plan kept from a statement with one row would
--    loop over 19,000 x 19,000 rows later, and the row counts of transition tables are only seen by a fresh plan.
--    Nothing else is known of them, so the planner is kept from compiling (jit) or sorting (merge join) for rows that
--    it only imagines.

-- Is history off? The key's presence counts, not its value.
create function cue_history_off() returns boolean
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$ select exists (select from public.config where str_key = 'DISABLE_HISTORY') $$;

-- Tier of a holder of cores, by which holders are compared: below 1 it has less than its share.
-- Points in, ratio out; a share of 0 gives cores + 1.
create function cue_tier(p_cores numeric, p_share numeric) returns numeric
language sql immutable
as $$
    select case when p_share = 0 then p_cores / 100 + 1
                when p_cores = 0 then - p_share
                else p_cores / p_share end
$$;

-- The same, but level 1 once the minimum is met: for folders and departments.
create function cue_soft_tier(p_cores numeric, p_min numeric) returns numeric
language sql immutable
as $$
    select case when p_cores is null then 0
                when p_min = 0 or p_cores >= p_min then 1
                when p_cores = 0 then - p_min
                else p_cores / p_min end
$$;

-- frame, before the row is stored -------------------------------------------------------------------------------------

create function cue_frame_stamp_eligible() returns trigger
language plpgsql
as $$
begin
    new.ts_eligible := current_timestamp;
    return new;
end
$$;

-- What an update's new state or open depends lead to besides; in the order in which OpenCue's triggers fire, each rule
-- on the row as the one before left it.
create function cue_frame_follow() returns trigger
language plpgsql
as $$
begin
    -- set_frame_ts_eligible_setup_to_wait
    if old.str_state = 'SETUP' and new.str_state = 'WAITING' then
        new.ts_eligible := current_timestamp;
    end if;
    -- update_frame_checkpoint_state
    if new.str_checkpoint_state in ('ENABLED', 'COPYING') and new.str_state = 'WAITING' and old.str_state = 'RUNNING' then
        new.str_state := 'CHECKPOINT';
    end if;
    -- update_frame_dep_to_wait
    if old.int_depend_count > 0 and new.int_depend_count < 1 and old.str_state = 'DEPEND' then
        new.str_state := 'WAITING';
        new.ts_updated := current_timestamp;
        new.ts_eligible := current_timestamp;
        new.int_version := new.int_version + 1;
    end if;
    -- update_frame_eaten
    if old.str_state = 'SUCCEEDED' and new.str_state = 'EATEN' then
        new.str_state := 'SUCCEEDED';
    end if;
    -- update_frame_wait_to_dep
    if new.int_depend_count > 0 and new.str_state in ('DEAD', 'SUCCEEDED', 'WAITING', 'CHECKPOINT') then
        new.str_state := 'DEPEND';
        new.ts_updated := current_timestamp;
        new.int_version := new.int_version + 1;
    end if;
    return new;
end
$$;

create trigger set_frame_ts_eligible_on_insert before insert on frame
    for each row when (new.str_state = 'WAITING' and new.ts_eligible is null)
    execute function cue_frame_stamp_eligible();

-- One trigger for five rules: a test a row, not five, and for a start (the commonest update) two comparisons. Rows on
-- which no rule begins fire nothing, for none begins on what another left alone.
create trigger follow_frame_update before update on frame
    for each row when (
        (old.str_state = 'DEPEND' and old.int_depend_count > 0 and new.int_depend_count < 1)
        or (new.str_state <> 'RUNNING' and (
            (old.str_state = 'SETUP' and new.str_state = 'WAITING')
            or (old.str_state = 'RUNNING' and new.str_state = 'WAITING'
                and new.str_checkpoint_state in ('ENABLED', 'COPYING'))
            or (old.str_state = 'SUCCEEDED' and new.str_state = 'EATEN')
            or (new.int_depend_count > 0 and new.str_state in ('DEAD', 'SUCCEEDED', 'WAITING', 'CHECKPOINT')))))
    execute function cue_frame_follow();

-- frame, after the statement ------------------------------------------------------------------------------------------

-- Counters of layers and jobs, first start and last stop of layers, and the events of history, in one pass.
-- Frames that come out of SETUP are not counted: who activates a job assigns its counters.
-- Locks layer_stat rows sorted, then job_stat rows sorted. Raises P0001 when a frame is put into a state that has no
-- counter.
create function cue_frame_state_changed() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_layers     text[];
    v_jobs       text[];
    v_states     text[];
    v_deltas     bigint[];
    v_started    timestamptz[];
    v_stopped    timestamptz[];
    v_first      text;
    v_last       text;
    v_new_first  text;
    v_new_last   text;
    v_old        text;
    v_woken      text[];
    v_orders     bigint[];
begin
    -- Most statements take all their frames from one state to one other: then no row need be held against its old
    -- self, and where the state stays (a report's usage) there is nothing to do.
    select min(str_state), max(str_state) into v_first, v_last from old_frame;
    v_old := 'o.str_state as old_state from new_frame n'
             ' join old_frame o on o.pk_frame = n.pk_frame and o.str_state <> n.str_state';
    if v_first = v_last then
        select min(str_state), max(str_state) into v_new_first, v_new_last from new_frame;
        if v_new_first = v_new_last then
            if v_first = v_new_first then
                return null;
            end if;
            v_old := format('%L::text as old_state from new_frame n', v_first);
        end if;
    end if;

    -- v_layers .. v_deltas are parallel: one entry a layer and state, the state's change summed over the statement.
    -- The times stand with the layer's RUNNING entry, which any start or stop gives it.
    execute $sql$
        with changed as (
            select n.pk_frame, n.pk_layer, n.pk_job, n.str_name, n.str_host, n.int_cores, n.int_mem_reserved,
                   n.int_gpus, n.int_gpu_mem_reserved, n.int_mem_max_used, n.int_gpu_mem_max_used, n.int_exit_status,
                   n.ts_started, n.ts_stopped, n.int_dispatch_order, n.str_state as new_state,
        $sql$ || v_old || $sql$
        ), ended as (
            insert into public.frame_history_queue (
                   str_event, pk_frame, int_ts, int_mem_max_used, int_gpu_mem_max_used, int_exit_status,
                   int_checkpoint_count)
            select case when c.int_exit_status = 299 then 'X' else 'E' end, c.pk_frame,
                   extract(epoch from coalesce(c.ts_stopped, current_timestamp))::integer,
                   c.int_mem_max_used, c.int_gpu_mem_max_used, c.int_exit_status,
                   (c.new_state = 'CHECKPOINT')::integer
              from changed c
             where c.old_state = 'RUNNING' and not $1
        ), started as (
            insert into public.frame_history_queue (
                   str_event, pk_frame, int_ts, pk_layer, pk_job, str_name, str_host, pk_alloc, int_cores,
                   int_mem_reserved, int_gpus, int_gpu_mem_reserved)
            select 'S', c.pk_frame, extract(epoch from coalesce(c.ts_started, current_timestamp))::integer,
                   c.pk_layer, c.pk_job, c.str_name, c.str_host, h.pk_alloc, c.int_cores,
                   c.int_mem_reserved, c.int_gpus, c.int_gpu_mem_reserved
              from changed c
              -- "offset 0" keeps the planner, which foresees few starts, from looking each host up by its index.
              left join (select str_name, pk_alloc from public.host offset 0) h on h.str_name = c.str_host
             where c.new_state = 'RUNNING' and not $1
        ), moved as (
            select pk_layer, pk_job, old_state, new_state, count(*) as frames,
                   min(coalesce(ts_started, current_timestamp)) filter (where new_state = 'RUNNING') as started,
                   max(coalesce(ts_stopped, current_timestamp)) filter (where old_state = 'RUNNING') as stopped
              from changed
             where old_state <> 'SETUP'
             group by pk_layer, pk_job, old_state, new_state
        ), delta as (
            select m.pk_layer, m.pk_job, d.state, sum(d.frames)::bigint as frames,
                   min(m.started) as started, max(m.stopped) as stopped
              from moved m
             cross join lateral (values (m.old_state, - m.frames), (m.new_state, m.frames)) d (state, frames)
             group by m.pk_layer, m.pk_job, d.state
        )
        , woken as (
            select pk_layer, min(int_dispatch_order) as first
              from changed where new_state = 'WAITING' group by pk_layer
        )
        select array_agg(pk_layer), array_agg(pk_job), array_agg(state), array_agg(frames),
               array_agg(started), array_agg(stopped),
               (select array_agg(pk_layer order by pk_layer) from woken),
               (select array_agg(first order by pk_layer) from woken)
          from delta
    $sql$
    into v_layers, v_jobs, v_states, v_deltas, v_started, v_stopped, v_woken, v_orders
    using public.cue_history_off();

    if v_layers is null then
        return null;
    end if;
    if not v_states <@ array['WAITING', 'RUNNING', 'SUCCEEDED', 'DEPEND', 'DEAD', 'EATEN', 'CHECKPOINT'] then
        raise exception 'no counter for frames in state %', (
            select string_agg(distinct s, ', ') from unnest(v_states) s
             where s <> all (array['WAITING', 'RUNNING', 'SUCCEEDED', 'DEPEND', 'DEAD', 'EATEN', 'CHECKPOINT']))
            using hint = 'a frame leaves SETUP once and never returns to it';
    end if;

    -- Rows are locked in order, and then written by their addresses, which the locks keep.
    with change as (
        select u.pk_layer,
               coalesce(sum(u.frames) filter (where u.state = 'WAITING'), 0) as waiting,
               coalesce(sum(u.frames) filter (where u.state = 'RUNNING'), 0) as running,
               coalesce(sum(u.frames) filter (where u.state = 'SUCCEEDED'), 0) as succeeded,
               coalesce(sum(u.frames) filter (where u.state = 'DEPEND'), 0) as depend,
               coalesce(sum(u.frames) filter (where u.state = 'DEAD'), 0) as dead,
               coalesce(sum(u.frames) filter (where u.state = 'EATEN'), 0) as eaten,
               coalesce(sum(u.frames) filter (where u.state = 'CHECKPOINT'), 0) as checkpoint,
               min(u.started) as started,
               max(u.stopped) as stopped
          from unnest(v_layers, v_states, v_deltas, v_started, v_stopped)
               as u (pk_layer, state, frames, started, stopped)
         group by u.pk_layer
    ), held as materialized (
        select s.ctid as at, c.*
          from public.layer_stat s
          join change c on c.pk_layer = s.pk_layer
         order by s.pk_layer
           for no key update of s
    )
    update public.layer_stat s
       set int_waiting_count = s.int_waiting_count + h.waiting,
           int_running_count = s.int_running_count + h.running,
           int_succeeded_count = s.int_succeeded_count + h.succeeded,
           int_depend_count = s.int_depend_count + h.depend,
           int_dead_count = s.int_dead_count + h.dead,
           int_eaten_count = s.int_eaten_count + h.eaten,
           int_checkpoint_count = s.int_checkpoint_count + h.checkpoint,
           ts_started = coalesce(s.ts_started, h.started),
           ts_stopped = coalesce(h.stopped, s.ts_stopped)
      from held h
     where s.ctid = h.at;

    with change as (
        select u.pk_job,
               coalesce(sum(u.frames) filter (where u.state = 'WAITING'), 0) as waiting,
               coalesce(sum(u.frames) filter (where u.state = 'RUNNING'), 0) as running,
               coalesce(sum(u.frames) filter (where u.state = 'SUCCEEDED'), 0) as succeeded,
               coalesce(sum(u.frames) filter (where u.state = 'DEPEND'), 0) as depend,
               coalesce(sum(u.frames) filter (where u.state = 'DEAD'), 0) as dead,
               coalesce(sum(u.frames) filter (where u.state = 'EATEN'), 0) as eaten,
               coalesce(sum(u.frames) filter (where u.state = 'CHECKPOINT'), 0) as checkpoint
          from unnest(v_jobs, v_states, v_deltas) as u (pk_job, state, frames)
         group by u.pk_job
    ), held as materialized (
        select s.ctid as at, c.*
          from public.job_stat s
          join change c on c.pk_job = s.pk_job
         order by s.pk_job
           for no key update of s
    )
    update public.job_stat s
       set int_waiting_count = s.int_waiting_count + h.waiting,
           int_running_count = s.int_running_count + h.running,
           int_succeeded_count = s.int_succeeded_count + h.succeeded,
           int_depend_count = s.int_depend_count + h.depend,
           int_dead_count = s.int_dead_count + h.dead,
           int_eaten_count = s.int_eaten_count + h.eaten,
           int_checkpoint_count = s.int_checkpoint_count + h.checkpoint
      from held h
     where s.ctid = h.at;

    -- A frame that waits again must not lie before its layer's mark. The layer_stat rows locked above keep the tick
    -- from moving the mark meanwhile. Without schema maestro nobody reads marks.
    if v_woken is not null and to_regclass('maestro.layer_mark') is not null then
        update maestro.layer_mark m
           set first_order = w.first_order
          from unnest(v_woken, v_orders) as w (pk_layer, first_order)
         where m.pk_layer = w.pk_layer and m.first_order > w.first_order;
    end if;

    return null;
end
$$;

create trigger update_frame_status_counts after update on frame
    referencing old table as old_frame new table as new_frame
    for each statement execute function cue_frame_state_changed();

-- host: nothing idle below zero ---------------------------------------------------------------------------------------

-- Raises P0001 with the message Cuebot knows; called only for a row that breaks the rule.
create function cue_refuse_idle() returns trigger
language plpgsql
as $$
declare
    v_what text := case when new.int_cores_idle < 0 then 'core units'
                        when new.int_mem_idle < 0 then 'memory'
                        when new.int_gpus_idle < 0 then 'GPU units'
                        else 'GPU memory' end;
begin
    raise exception 'unable to allocate additional %', v_what
        using detail = format('%s %s: idle would be %s core points, %s KiB, %s GPUs, %s KiB of GPU memory.',
                              tg_table_name, new.pk_host, new.int_cores_idle, new.int_mem_idle, new.int_gpus_idle,
                              new.int_gpu_mem_idle);
end
$$;

create trigger verify_host_resources before update on host
    for each row when (
        (new.int_cores_idle < 0 or new.int_mem_idle < 0 or new.int_gpus_idle < 0 or new.int_gpu_mem_idle < 0)
        and (new.int_cores_idle <> old.int_cores_idle or new.int_mem_idle <> old.int_mem_idle
             or new.int_gpus_idle <> old.int_gpus_idle or new.int_gpu_mem_idle <> old.int_gpu_mem_idle))
    execute function cue_refuse_idle();

create function cue_host_delete() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    delete from public.host_stat where pk_host = old.pk_host;
    delete from public.host_tag where pk_host = old.pk_host;
    return old;
end
$$;

create trigger before_delete_host before delete on host
    for each row execute function cue_host_delete();

-- What a workstation lends. Stricter than OpenCue's, which skips a change on the CPU or the GPU side alone.
create trigger verify_host_local before update on host_local
    for each row when (
        (new.int_cores_idle < 0 or new.int_mem_idle < 0 or new.int_gpus_idle < 0 or new.int_gpu_mem_idle < 0)
        and (new.int_cores_idle <> old.int_cores_idle or new.int_mem_idle <> old.int_mem_idle
             or new.int_gpus_idle <> old.int_gpus_idle or new.int_gpu_mem_idle <> old.int_gpu_mem_idle)
        and new.int_cores_max = old.int_cores_max and new.int_mem_max = old.int_mem_max
        and new.int_gpus_max = old.int_gpus_max and new.int_gpu_mem_max = old.int_gpu_mem_max)
    execute function cue_refuse_idle();

create function cue_host_local_tier() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    new.float_tier := public.cue_tier(new.int_cores_max - new.int_cores_idle, new.int_cores_max);
    return new;
end
$$;

create trigger tier_host_local before update on host_local
    for each row execute function cue_host_local_tier();

-- Caps and tiers of what holds cores ----------------------------------------------------------------------------------

-- Raises P0001 with the message given to the trigger; called only for a row that breaks its rule.
create function cue_refuse() returns trigger
language plpgsql
as $$
begin
    raise exception '%', tg_argv[0]
        using detail = format('%s row %s', tg_table_name, to_jsonb(new));
end
$$;

create trigger verify_job_resources_cores before update on job_resource
    for each row when (
        new.int_cores > new.int_max_cores
        and (new.int_max_cores = old.int_max_cores and new.int_cores > old.int_cores
             or new.int_max_gpus = old.int_max_gpus and new.int_gpus > old.int_gpus))
    execute function cue_refuse('job has exceeded max cores');

create trigger verify_job_resources_gpus before update on job_resource
    for each row when (
        new.int_gpus > new.int_max_gpus
        and (new.int_max_cores = old.int_max_cores and new.int_cores > old.int_cores
             or new.int_max_gpus = old.int_max_gpus and new.int_gpus > old.int_gpus))
    execute function cue_refuse('job has exceeded max GPU units');

create trigger verify_subscription before update on subscription
    for each row when (
        new.int_cores > new.int_burst and new.int_cores > old.int_cores and new.int_burst = old.int_burst)
    execute function cue_refuse('subscription has exceeded burst size');

create trigger verify_job_local before update on job_local
    for each row when (
        new.int_cores > new.int_max_cores and new.int_cores > old.int_cores
        and new.int_max_cores = old.int_max_cores)
    execute function cue_refuse('job has exceeded max local cores');

create function cue_subscription_tier() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    new.float_tier := public.cue_tier(new.int_cores, new.int_size);
    return new;
end
$$;

create function cue_job_tier() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    new.float_tier := public.cue_tier(new.int_cores, new.int_min_cores);
    return new;
end
$$;

create function cue_soft_tier_of_row() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    new.float_tier := public.cue_soft_tier(new.int_cores, new.int_min_cores);
    return new;
end
$$;

create trigger tier_subscription before update on subscription
    for each row execute function cue_subscription_tier();

create trigger tier_job before update on job_resource
    for each row execute function cue_job_tier();

create trigger tier_folder before update on folder_resource
    for each row execute function cue_soft_tier_of_row();

create trigger point_tier before update on point
    for each row execute function cue_soft_tier_of_row();

-- proc ----------------------------------------------------------------------------------------------------------------

create trigger before_insert_proc before insert on proc
    for each row when (new.int_cores_reserved <= 0)
    execute function cue_refuse('a proc must reserve more than 0 cores');

-- A proc whose reserved memory changes pays from its host's idle memory; one that goes to another layer takes its
-- cores and gpus along. Locks hosts sorted, then layer_resource rows sorted.
create function cue_proc_changed() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_hosts  text[];
    v_mem    bigint[];
    v_layers text[];
    v_cores  bigint[];
    v_gpus   bigint[];
begin
    execute $sql$
        with changed as materialized (
            select n.pk_host, n.pk_layer, o.pk_layer as old_layer,
                   n.int_mem_reserved - o.int_mem_reserved as mem,
                   n.int_cores_reserved, o.int_cores_reserved as old_cores,
                   n.int_gpus_reserved, o.int_gpus_reserved as old_gpus
              from new_proc n
              join old_proc o on o.pk_proc = n.pk_proc
             where o.int_mem_reserved <> n.int_mem_reserved
                or o.pk_layer is distinct from n.pk_layer
        ), host_delta as (
            select pk_host, sum(mem)::bigint as mem
              from changed
             group by pk_host
            having sum(mem) <> 0
        ), layer_delta as (
            select d.pk_layer, sum(d.cores)::bigint as cores, sum(d.gpus)::bigint as gpus
              from changed c
             cross join lateral (
                values (c.old_layer, - c.old_cores, - c.old_gpus),
                       (c.pk_layer, c.int_cores_reserved, c.int_gpus_reserved)
             ) d (pk_layer, cores, gpus)
             where c.old_layer is distinct from c.pk_layer and d.pk_layer is not null
             group by d.pk_layer
        )
        select (select array_agg(pk_host) from host_delta), (select array_agg(mem) from host_delta),
               (select array_agg(pk_layer) from layer_delta), (select array_agg(cores) from layer_delta),
               (select array_agg(gpus) from layer_delta)
    $sql$
    into v_hosts, v_mem, v_layers, v_cores, v_gpus;

    if v_hosts is not null then
        perform from public.host h where h.pk_host = any (v_hosts) order by h.pk_host for no key update;
        update public.host h
           set int_mem_idle = h.int_mem_idle - d.mem
          from unnest(v_hosts, v_mem) as d (pk_host, mem)
         where h.pk_host = d.pk_host;
    end if;

    if v_layers is not null then
        perform from public.layer_resource r
          where r.pk_layer = any (v_layers) order by r.pk_layer for no key update;
        update public.layer_resource r
           set int_cores = r.int_cores + d.cores,
               int_gpus = r.int_gpus + d.gpus
          from unnest(v_layers, v_cores, v_gpus) as d (pk_layer, cores, gpus)
         where r.pk_layer = d.pk_layer;
    end if;
    return null;
end
$$;

create trigger upgrade_proc_memory_usage after update on proc
    referencing old table as old_proc new table as new_proc
    for each statement execute function cue_proc_changed();

-- folder --------------------------------------------------------------------------------------------------------------

create function cue_folder_is_root() returns trigger
language plpgsql
as $$
begin
    new.b_default := true;
    return new;
end
$$;

create function cue_folder_insert() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    insert into public.folder_level (pk_folder_level, pk_folder, int_level)
    values (new.pk_folder, new.pk_folder,
            coalesce((select int_level + 1 from public.folder_level where pk_folder = new.pk_parent_folder), 0));
    insert into public.folder_resource (pk_folder_resource, pk_folder) values (new.pk_folder, new.pk_folder);
    return null;
end
$$;

create function cue_folder_delete() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    delete from public.folder_level where pk_folder = old.pk_folder;
    delete from public.folder_resource where pk_folder = old.pk_folder;
    return old;
end
$$;

create trigger before_insert_folder before insert on folder
    for each row when (new.pk_parent_folder is null)
    execute function cue_folder_is_root();

create trigger after_insert_folder after insert on folder
    for each row execute function cue_folder_insert();

create trigger before_delete_folder before delete on folder
    for each row execute function cue_folder_delete();

-- job -----------------------------------------------------------------------------------------------------------------

create function cue_job_insert() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    insert into public.job_stat (pk_job_stat, pk_job) select pk_job, pk_job from new_job;
    insert into public.job_resource (pk_job_resource, pk_job) select pk_job, pk_job from new_job;
    insert into public.job_usage (pk_job_usage, pk_job) select pk_job, pk_job from new_job;
    insert into public.job_mem (pk_job_mem, pk_job) select pk_job, pk_job from new_job;
    if not public.cue_history_off() then
        insert into public.job_history (
               pk_job, pk_show, pk_facility, pk_dept, str_name, str_shot, str_user, int_ts_started, dt_last_modified)
        select pk_job, pk_show, pk_facility, pk_dept, str_name, str_shot, str_user,
               extract(epoch from ts_started)::integer, current_date
          from new_job;
    end if;
    return null;
end
$$;

create trigger after_insert_job after insert on job
    referencing new table as new_job
    for each statement execute function cue_job_insert();

-- Final totals of one job and its layers into the history rows, which exist unless history was off at their start.
-- Called when a job ends and before it is deleted.
create function cue_job_totals(p_job text, p_stopped timestamptz, p_archived boolean) returns void
language sql
set search_path = pg_catalog, public, pg_temp
as $$
    update public.job_history h
       set int_core_time_success = u.int_core_time_success,
           int_core_time_fail = u.int_core_time_fail,
           int_gpu_time_success = u.int_gpu_time_success,
           int_gpu_time_fail = u.int_gpu_time_fail,
           int_frame_count = j.int_frame_count,
           int_layer_count = j.int_layer_count,
           int_waiting_count = s.int_waiting_count,
           int_dead_count = s.int_dead_count,
           int_depend_count = s.int_depend_count,
           int_eaten_count = s.int_eaten_count,
           int_succeeded_count = s.int_succeeded_count,
           int_running_count = s.int_running_count,
           int_max_rss = m.int_max_rss,
           int_gpu_mem_max = m.int_gpu_mem_max,
           b_archived = h.b_archived or p_archived,
           int_ts_stopped = extract(epoch from coalesce(p_stopped, current_timestamp))::integer
      from public.job j
      join public.job_usage u on u.pk_job = j.pk_job
      join public.job_stat s on s.pk_job = j.pk_job
      join public.job_mem m on m.pk_job = j.pk_job
     where j.pk_job = p_job and h.pk_job = j.pk_job;
$$;

create function cue_layer_totals(p_layers text[], p_archived boolean) returns void
language sql
set search_path = pg_catalog, public, pg_temp
as $$
    update public.layer_history h
       set int_core_time_success = u.int_core_time_success,
           int_core_time_fail = u.int_core_time_fail,
           int_gpu_time_success = u.int_gpu_time_success,
           int_gpu_time_fail = u.int_gpu_time_fail,
           int_frame_count = s.int_total_count,
           int_waiting_count = s.int_waiting_count,
           int_dead_count = s.int_dead_count,
           int_depend_count = s.int_depend_count,
           int_eaten_count = s.int_eaten_count,
           int_succeeded_count = s.int_succeeded_count,
           int_running_count = s.int_running_count,
           int_max_rss = m.int_max_rss,
           int_gpu_mem_max = m.int_gpu_mem_max,
           b_archived = h.b_archived or p_archived
      from public.layer_usage u
      join public.layer_stat s on s.pk_layer = u.pk_layer
      join public.layer_mem m on m.pk_layer = u.pk_layer
     where u.pk_layer = any (p_layers) and h.pk_layer = u.pk_layer;
$$;

create function cue_job_finished() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    perform public.cue_job_totals(new.pk_job, new.ts_stopped, false);
    perform public.cue_layer_totals(array(select pk_layer from public.layer where pk_job = new.pk_job), false);
    delete from public.job_local where pk_job = new.pk_job;
    return null;
end
$$;

-- Moves what a job holds from one folder to another. Rows are locked sorted by key.
create function cue_job_moved() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_cores bigint;
    v_gpus  bigint;
begin
    select int_cores, int_gpus into v_cores, v_gpus
      from public.job_resource where pk_job = new.pk_job for no key update;
    perform from public.folder_resource
      where pk_folder in (old.pk_folder, new.pk_folder) order by pk_folder for no key update;
    update public.folder_resource
       set int_cores = int_cores + case when pk_folder = new.pk_folder then v_cores else - v_cores end,
           int_gpus = int_gpus + case when pk_folder = new.pk_folder then v_gpus else - v_gpus end
     where pk_folder in (old.pk_folder, new.pk_folder);
    return null;
end
$$;

-- The same between the departments of a show.
create function cue_job_dept_changed() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_cores bigint;
    v_gpus  bigint;
begin
    select int_cores, int_gpus into v_cores, v_gpus
      from public.job_resource where pk_job = new.pk_job for no key update;
    perform from public.point
      where pk_show = new.pk_show and pk_dept in (old.pk_dept, new.pk_dept) order by pk_point for no key update;
    update public.point
       set int_cores = int_cores + case when pk_dept = new.pk_dept then v_cores else - v_cores end,
           int_gpus = int_gpus + case when pk_dept = new.pk_dept then v_gpus else - v_gpus end
     where pk_show = new.pk_show and pk_dept in (old.pk_dept, new.pk_dept);
    return null;
end
$$;

-- Deletes what hangs on a job. A proc that still holds one of its frames blocks the deletion by its foreign key.
create function cue_job_delete() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    if not public.cue_history_off() then
        perform public.cue_job_totals(old.pk_job, old.ts_stopped, true);
    end if;
    delete from public.depend where pk_job_depend_on = old.pk_job or pk_job_depend_er = old.pk_job;
    delete from public.frame where pk_layer in (select pk_layer from public.layer where pk_job = old.pk_job);
    delete from public.layer where pk_job = old.pk_job;
    delete from public.job_env where pk_job = old.pk_job;
    delete from public.job_stat where pk_job = old.pk_job;
    delete from public.job_resource where pk_job = old.pk_job;
    delete from public.job_usage where pk_job = old.pk_job;
    delete from public.job_mem where pk_job = old.pk_job;
    delete from public.job_post where pk_job = old.pk_job or pk_post_job = old.pk_job;
    delete from public.comments where pk_job = old.pk_job;
    return old;
end
$$;

create trigger after_job_finished after update of str_state on job
    for each row when (old.str_state = 'PENDING' and new.str_state = 'FINISHED')
    execute function cue_job_finished();

create trigger after_job_moved after update of pk_folder on job
    for each row when (old.pk_folder <> new.pk_folder)
    execute function cue_job_moved();

create trigger after_job_dept_update after update of pk_dept on job
    for each row when (old.pk_dept <> new.pk_dept and new.str_state = 'PENDING')
    execute function cue_job_dept_changed();

create trigger before_delete_job before delete on job
    for each row execute function cue_job_delete();

-- layer ---------------------------------------------------------------------------------------------------------------

create function cue_layer_insert() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    insert into public.layer_stat (pk_layer_stat, pk_layer, pk_job) select pk_layer, pk_layer, pk_job from new_layer;
    insert into public.layer_resource (pk_layer_resource, pk_layer, pk_job)
    select pk_layer, pk_layer, pk_job from new_layer;
    insert into public.layer_usage (pk_layer_usage, pk_layer, pk_job) select pk_layer, pk_layer, pk_job from new_layer;
    insert into public.layer_mem (pk_layer_mem, pk_layer, pk_job) select pk_layer, pk_layer, pk_job from new_layer;
    if not public.cue_history_off() then
        insert into public.layer_history (
               pk_layer, pk_job, str_name, str_type, str_services, int_cores_min, int_mem_min, int_gpus_min,
               int_gpu_mem_min, dt_last_modified)
        select pk_layer, pk_job, str_name, str_type, str_services, int_cores_min, int_mem_min, int_gpus_min,
               int_gpu_mem_min, current_date
          from new_layer;
    end if;
    return null;
end
$$;

create trigger after_insert_layer after insert on layer
    referencing new table as new_layer
    for each statement execute function cue_layer_insert();

create function cue_layer_delete() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
    perform public.cue_layer_totals(array[old.pk_layer::text], true);
    delete from public.layer_resource where pk_layer = old.pk_layer;
    delete from public.layer_stat where pk_layer = old.pk_layer;
    delete from public.layer_usage where pk_layer = old.pk_layer;
    delete from public.layer_env where pk_layer = old.pk_layer;
    delete from public.layer_mem where pk_layer = old.pk_layer;
    delete from public.layer_output where pk_layer = old.pk_layer;
    delete from public.layer_limit where pk_layer = old.pk_layer;
    return old;
end
$$;

create trigger before_delete_layer before delete on layer
    for each row execute function cue_layer_delete();

-- history -------------------------------------------------------------------------------------------------------------

create function cue_history_stamp() returns trigger
language plpgsql
as $$
begin
    new.dt_last_modified := current_date;
    return new;
end
$$;

create trigger tbiu_job_history before insert or update on job_history
    for each row when (new.dt_last_modified is distinct from current_date) execute function cue_history_stamp();

create trigger tbiu_layer_history before insert or update on layer_history
    for each row when (new.dt_last_modified is distinct from current_date) execute function cue_history_stamp();

create trigger tbiu_frame_history before insert or update on frame_history
    for each row when (new.dt_last_modified is distinct from current_date) execute function cue_history_stamp();

-- They fire even where the session checks no foreign keys (commit_plan, large batches): no rule is ever left out.
do $$
declare
    v_trigger record;
begin
    for v_trigger in
        select t.tgname, t.tgrelid::regclass as table_name
          from pg_trigger t
          join pg_proc p on p.oid = t.tgfoid
         where p.pronamespace = 'public'::regnamespace and p.proname like 'cue\_%' and not t.tgisinternal
    loop
        execute format('alter table %s enable always trigger %I', v_trigger.table_name, v_trigger.tgname);
    end loop;
end
$$;
