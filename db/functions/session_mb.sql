-- session_mb: memory of this session's process that is its own, MiB. Python rarely gives freed memory back, so that a
-- session which plans for long only grows. Null where the system does not tell (no /proc). Locks nothing.
create or replace function maestro.session_mb() returns integer
language plpython3u
set search_path = pg_catalog, pg_temp
as $python$
try:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon:"))
except (OSError, StopIteration):
    return None
$python$;
comment on function maestro.session_mb() is
    'Private memory of this session''s process, MiB; null where the system does not tell.';
