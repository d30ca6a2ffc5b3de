-- living_launchers: the launchers whose heartbeat is young enough for their claims to stand.
-- Called by the claiming functions, for claims that are older than the setting launch_claim_seconds.
create or replace function maestro.living_launchers() returns bigint []
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select array(
        select l.launcher_id
          from maestro.launcher as l
         where l.heartbeat_at >= now() - make_interval(secs => (select maestro.setting('launch_claim_seconds'))::integer)
    );
$$;
comment on function maestro.living_launchers() is
    'Ids of the launchers whose last heartbeat is younger than the setting launch_claim_seconds.';
