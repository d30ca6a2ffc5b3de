-- session_is_full: whether this session holds more memory than session_max_mb. Whoever ticks asks between two ticks and
-- goes on in a fresh session: one that the kernel kills for its memory takes every session of the server along.
-- False where the memory is not known, and where there is no cap (0). Locks nothing.
create or replace function maestro.session_is_full() returns boolean
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(maestro.session_mb() > nullif(maestro.setting('session_max_mb')::integer, 0), false);
$$;
comment on function maestro.session_is_full() is
    'Whether this session holds more memory than session_max_mb: then the next tick belongs in a fresh one.';
