-- depends: 0002_life
--
-- What is learnt when memory runs out: which frames ask for more than their layer, how many of a layer's frames failed,
-- which runs were killed to save their host, and which hosts lose memory that nothing explains.

-- Frames that failed for memory: what each asks for at its next run, KiB. A row goes with the frame's success.
create table maestro.frame_memory (
    pk_frame text primary key,
    pk_layer text not null,
    mem bigint not null,
    failures integer not null default 1,
    updated_at timestamptz not null,
    constraint frame_memory_mem check (mem > 0)
) with (fillfactor = 70);

-- Different frames of a layer that failed for memory since one of its frames last succeeded with the layer's own.
create table maestro.layer_streak (
    pk_layer text primary key,
    frames text [] not null,
    updated_at timestamptz not null
) with (fillfactor = 50);

-- Runs whose death was ordered for their memory: however they end, it counts as a memory failure (status 33).
create table maestro.memory_kill (
    pk_proc text primary key,
    reason text not null,
    at timestamptz not null
);

-- Hosts that miss more memory than host_leak_mb: in how many reports in a row, and since when.
create table maestro.host_leak (
    pk_host text primary key,
    reports integer not null default 1,
    since timestamptz not null,
    leaked_kib bigint not null
) with (fillfactor = 50);
