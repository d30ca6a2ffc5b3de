-- The planner's own tables: settings, what each tick did, and the hand-overs between tick, launcher and reports.
-- Rows of OpenCue's tables are named by their keys without foreign keys: history outlives them, and the tick's
-- inserts stay cheap.

create schema if not exists maestro;

create table maestro.setting (
    name text primary key,
    value text not null,
    unit text not null,
    default_value text not null,
    description text not null,
    kind text not null,
    min_value numeric,
    max_value numeric,
    choices text [],
    constraint setting_kind check (kind in ('boolean', 'integer', 'number', 'choice', 'text'))
);
comment on table maestro.setting is 'Every knob; a write is checked (setting_check) and acts at the next tick.';

-- One row a tick. `stats` is the tick's whole jsonb answer, from which metrics and stat_line are read.
create table maestro.tick (
    tick_id bigint generated always as identity primary key,
    started_at timestamptz not null,
    seed bigint,
    status text not null,
    planned integer not null default 0,
    committed integer not null default 0,
    ms numeric not null default 0,
    stats jsonb not null default '{}',
    constraint tick_status check (status in ('planned', 'off', 'error'))
);
-- stat_line and retention ask by time; ticks arrive in time order.
create index tick_started_at on maestro.tick using brin (started_at);

-- What a tick decided, one row a tick: parallel arrays, one entry per (layer, host, kind, outcome), in which layers and
-- hosts are positions (from 1) in the arrays of keys. Rows of their own would cost a fill a tenth of its time and keep
-- a hundred million rows a day; the view maestro.placement unfolds them.
create table maestro.tick_plan (
    tick_id bigint primary key,
    layers text [] not null,
    hosts text [] not null,
    layer integer [] not null,
    host integer [] not null,
    frames integer [] not null,
    term_cores double precision [] not null default '{}',
    term_mem double precision [] not null default '{}',
    term_gpus double precision [] not null default '{}',
    term_gpu_mem double precision [] not null default '{}',
    term_locality double precision [] not null default '{}',
    term_seat double precision [] not null default '{}',
    warmth text [] not null default '{}',
    backfill boolean [] not null default '{}',
    outcome text [] not null default '{}'
);

-- Why each waiting layer waits, as the last tick saw it. One row, for the tick would spend longer on a row a layer than
-- on deciding: the view last_wait gives those. kinds: of each layer, a position (from 1) in buckets and reasons.
create table maestro.tick_wait (
    is_only boolean primary key default true check (is_only),
    tick_id bigint not null,
    layers text [] not null,
    kinds integer [] not null,
    buckets text [] not null,
    reasons jsonb [] not null
);
-- Keys hardly compress, and trying takes longer than all else.
alter table maestro.tick_wait alter column layers set storage external;

-- Where a layer's waiting frames begin: no WAITING frame of the layer has a lower int_dispatch_order. The tick moves a
-- mark on when it passes many frames that are done (raise_marks); a frame that waits again moves it back (the trigger
-- on frame). A layer without a row is read from its first frame. Who lowers dispatch orders deletes the layer's mark.
create table maestro.layer_mark (
    pk_layer text primary key,
    first_order bigint not null
) with (fillfactor = 50);

-- The outbox: one row per booking whose launch is not yet confirmed. Rows of done launches are deleted.
create table maestro.launch (
    launch_id bigint generated always as identity primary key,
    tick_id bigint not null,
    pk_proc text not null,
    pk_frame text not null,
    pk_host text not null,
    state text not null default 'ready',
    attempts integer not null default 0,
    claimed_by bigint,
    claimed_at timestamptz,
    error text,
    created_at timestamptz not null default now(),
    constraint launch_state check (state in ('ready', 'claimed', 'refused')),
    constraint launch_claim check ((state = 'claimed') = (claimed_by is not null and claimed_at is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

create table maestro.launcher (
    launcher_id bigint generated always as identity primary key,
    hostname text not null,
    pid integer not null,
    version text not null,
    started_at timestamptz not null default now(),
    heartbeat_at timestamptz not null default now(),
    draining boolean not null default false,
    health jsonb not null default '{}'
) with (fillfactor = 50);

-- What hosts are to be told besides launches.
create table maestro.host_order (
    order_id bigint generated always as identity primary key,
    kind text not null,
    pk_host text not null,
    pk_proc text,
    pk_frame text,
    reason text not null,
    state text not null default 'ready',
    attempts integer not null default 0,
    claimed_by bigint,
    claimed_at timestamptz,
    error text,
    created_at timestamptz not null default now(),
    constraint host_order_kind check (kind in ('kill', 'restart_idle')),
    constraint host_order_state check (state in ('ready', 'claimed')),
    constraint host_order_claim check ((state = 'claimed') = (claimed_by is not null and claimed_at is not null)),
    constraint host_order_frame check ((kind = 'kill') = (pk_frame is not null))
);
-- The same order is never queued twice: reports repeat it every few seconds.
create unique index host_order_once on maestro.host_order (
    kind, pk_host, coalesce(pk_proc, ''), coalesce(pk_frame, '')
);

-- The inbox of completions: acknowledged to RQD once this row is committed, applied by the next tick's drain.
create table maestro.completion (
    completion_id bigint generated always as identity primary key,
    received_at timestamptz not null default now(),
    pk_proc text not null,
    pk_frame text not null,
    host_name text not null,
    exit_status integer not null,
    exit_signal integer not null,
    run_time_seconds bigint not null,
    max_rss_kib bigint not null,
    max_gpu_mem_kib bigint not null,
    llu_at timestamptz,
    nimby_locked boolean not null,
    host_free_mem_kib bigint,
    constraint completion_sizes check (run_time_seconds >= 0 and max_rss_kib >= 0 and max_gpu_mem_kib >= 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- Where a host's RQD is dialled when it is not at its own name and the default port (tunnels, several RQDs a machine).
create table maestro.host_dial (
    str_name text primary key,
    target text not null,
    constraint host_dial_target check (target ~ '^\S+:\d{1,5}$')
);

create table maestro.host_drain (
    pk_host text primary key,
    reason text not null,
    requested_at timestamptz not null default now(),
    state text not null default 'draining',
    constraint host_drain_state check (state in ('draining', 'restarting'))
);

-- Every correction made by a sweep: books that did not balance, hand-overs that were lost. Empty on a healthy farm.
create table maestro.fault (
    fault_id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    kind text not null,
    detail jsonb not null
);

-- Roles carry no login; sites grant them to their own.
do $$
declare
    v_role text;
begin
    foreach v_role in array array['maestro_admin', 'maestro_tick', 'maestro_launcher', 'maestro_reader'] loop
        if not exists (select from pg_roles where rolname = v_role) then
            execute format('create role %I nologin', v_role);
        end if;
    end loop;
end
$$;
