-- register_launcher: a launcher that starts makes itself known and gets its number.
-- Called once by each launcher at its start, and again when its row is gone. Rows silent for a day are removed here.
-- Locks: none that others wait for.
-- Errors: none of its own.
create or replace function maestro.register_launcher(
    p_hostname text,
    p_pid integer,
    p_version text
) returns bigint
language sql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
    delete from maestro.launcher where heartbeat_at < now() - interval '1 day';
    insert into maestro.launcher (hostname, pid, version)
    values (p_hostname, p_pid, p_version)
    returning launcher_id;
$$;
comment on function maestro.register_launcher(text, integer, text) is
    'Registers a launcher process (host name, process id, version) and returns its launcher_id.';
