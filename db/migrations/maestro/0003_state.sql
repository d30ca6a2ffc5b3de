-- depends: 0002_life
--
-- What the planner remembers from tick to tick: held hosts, blocked time, where layers' data is warm, what their frames
-- use, and how limits behave. All of it is soft: a tick that finds these tables empty plans correctly.

-- Hosts held for layers too wide to fit while small frames stream by.
create table maestro.reservation (
    pk_host text primary key,
    pk_layer text not null,
    priority integer not null,
    cores_min integer not null,
    granted_at timestamptz not null
) with (fillfactor = 70);
comment on table maestro.reservation is
    'Hosts held for a wide layer (core points) until it runs there or its demand falls; the tick grants and releases.';

-- Net blocked time of layers: it grows while a layer waits and gets nothing, and falls while it places.
create table maestro.blocked_debt (
    pk_layer text primary key,
    blocked_ms bigint not null,
    updated_at timestamptz not null,
    constraint blocked_debt_ms check (blocked_ms >= 0)
) with (fillfactor = 50);

-- Layers whose planned frames were all dropped by the commit: in how many ticks in a row.
create table maestro.plan_zero (
    pk_layer text primary key,
    ticks integer not null
) with (fillfactor = 50);

-- Frames ever booked onto a host. Differences of it tell how much other work has displaced a layer's data there.
create table maestro.odometer (
    pk_host text primary key,
    frames bigint not null
) with (fillfactor = 50);

-- Hosts that a layer has left, with the host's odometer at that moment. A row beyond locality_window_frames is cold.
create table maestro.warmth (
    pk_host text not null,
    pk_layer text not null,
    odometer_at_leave bigint not null,
    constraint warmth_pkey primary key (pk_host, pk_layer)
) with (fillfactor = 70);

-- Peak memory of a layer's last frames, KiB: parallel arrays, oldest first, one entry a frame. frames holds
-- hashes of frame keys; a frame that is seen again replaces its entry.
create table maestro.layer_memory (
    pk_layer text primary key,
    frames integer [] not null,
    peaks bigint [] not null,
    median_rss bigint not null,
    samples integer not null
) with (fillfactor = 50);

-- Peaks as hosts report them, until the next tick takes them into layer_memory. Reports only append: they never wait.
create table maestro.peak_sample (
    pk_layer text not null,
    pk_frame text not null,
    peak_rss bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- What a limit does once its reports are older than its time to live. A limit without a row fails open, as in OpenCue.
create table maestro.limit_policy (
    pk_limit_record text primary key,
    on_stale text not null,
    constraint limit_policy_on_stale check (on_stale in ('open', 'closed'))
);
comment on table maestro.limit_policy is
    'open: a limit whose usage reports stopped no longer blocks; closed: it blocks all its layers until reports return.';

-- Layers that a limit's exit status holds back: until a frame succeeds that started after the last denial, one frame is
-- tried per delay.
create table maestro.limit_probe (
    pk_layer text primary key,
    pk_limit_record text not null,
    denied_at timestamptz not null,
    next_at timestamptz not null
) with (fillfactor = 50);

-- Functions that now answer with more columns; the new ones follow with the other functions.
drop function if exists maestro.snapshot();
drop function if exists maestro.candidates(jsonb, timestamptz, boolean);
drop function if exists maestro.show_headrooms();
drop function if exists maestro.limit_headrooms();
