-- depends: 0007_claims

-- A frame about to start, locked, and the slot of the plan that it takes. Cores are core points, memory is KiB.
create type maestro.start as (
    at tid,
    version integer,
    slot integer,
    pk_show text,
    pk_host text,
    host_name text,
    cores integer,
    mem bigint,
    gpus integer,
    gpu_mem bigint
);

-- Their result is one row of arrays now.
drop function if exists maestro.snapshot();
drop function if exists maestro.candidates(jsonb, timestamptz, boolean);
