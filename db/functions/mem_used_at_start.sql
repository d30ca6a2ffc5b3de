-- mem_used_at_start: KiB that a proc is taken to use until its first report (OpenCue's mem_reserved_min).
create or replace function maestro.mem_used_at_start() returns bigint
language sql immutable
as $$
    select 262144::bigint;
$$;
comment on function maestro.mem_used_at_start() is 'KiB that a new proc is taken to use until RQD reports it.';
