-- depends: 0001_planner
--
-- Life after launch: what operators wish for running frames, when sweeps last ran, and the row types that the set-based
-- functions of this part hand to each other (arrays of rows spare a temporary table each tick).

-- What becomes of a running frame once its killed run has ended. The frame stays RUNNING and keeps its proc until then,
-- so that it never runs twice; the wish dies with the proc.
create table maestro.frame_wish (
    pk_proc text primary key,
    state text not null,
    requested_at timestamptz not null,
    constraint frame_wish_state check (state in ('WAITING', 'EATEN'))
);

-- When each sweep last ran; `pause` is the last moment at which nobody was there to hear reports.
create table maestro.sweep_clock (
    task text primary key,
    last_at timestamptz not null
) with (fillfactor = 50);

-- Hosts whose RQD started anew and has not yet shown which frames it still runs.
create table maestro.host_boot (
    pk_host text primary key,
    booted_at timestamptz not null
);

-- What a deleted proc held.
create type maestro.released as (
    pk_host text,
    pk_show text,
    pk_job text,
    pk_layer text,
    b_local boolean,
    cores bigint,
    mem bigint,
    gpus bigint,
    gpu_mem bigint
);

-- A completion that passed the fence, with the state it leads to. Times in seconds, memory in KiB.
create type maestro.drained as (
    completion_id bigint,
    pk_proc text,
    pk_host text,
    pk_frame text,
    pk_layer text,
    pk_job text,
    pk_show text,
    state text,
    exit_status integer,
    success boolean,
    memory_failure boolean,
    nimby_locked boolean,
    mem_reserved bigint,
    max_rss bigint,
    max_gpu_mem bigint,
    clock_seconds bigint,
    core_seconds bigint,
    gpu_seconds bigint,
    stopped_at timestamptz,
    pk_limit_record text
);

-- A host as it reports itself, checked. Cores are core points, memory is KiB as RQD measured it.
create type maestro.host_report as (
    name text,
    fqdn text,
    facility text,
    nimby_enabled boolean,
    nimby_locked boolean,
    num_procs bigint,
    cores bigint,
    total_mem bigint,
    free_mem bigint,
    total_swap bigint,
    free_swap bigint,
    total_mcp bigint,
    free_mcp bigint,
    load bigint,
    booted_at timestamptz,
    tags text [],
    state text,
    os text,
    gpus bigint,
    total_gpu_mem bigint,
    free_gpu_mem bigint
);

-- A running frame as its host reports it, checked. Memory is KiB.
create type maestro.run_report as (
    host_name text,
    pk_proc text,
    pk_frame text,
    started_at timestamptz,
    llu_at timestamptz,
    rss bigint,
    max_rss bigint,
    vsize bigint,
    max_vsize bigint,
    pss bigint,
    max_pss bigint,
    swap bigint,
    gpu_mem bigint,
    max_gpu_mem bigint
);
