-- launcher_is_alive: whether a launcher's heartbeat is young enough for its claims to stand.
-- Called by the claiming functions, for claims that are older than the setting launch_claim_seconds.
create or replace function maestro.launcher_is_alive(p_launcher_id bigint) returns boolean
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select exists (
        select from maestro.launcher as l
         where l.launcher_id = p_launcher_id
           and l.heartbeat_at >= now() - make_interval(secs => maestro.setting('launch_claim_seconds')::integer)
    );
$$;
comment on function maestro.launcher_is_alive(bigint) is
    'True while the launcher''s last heartbeat is younger than the setting launch_claim_seconds.';
