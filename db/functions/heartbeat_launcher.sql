-- heartbeat_launcher: a launcher says that it lives; its claims are kept while it does.
-- Called every few seconds by each launcher, on a connection of its own, so that no slow call delays it.
-- It also ends a tick that hangs (end_hung_tick), for nobody else may be there to notice.
-- Answer: {"known": false} when the row is gone (the launcher registers anew), and the settings that a launcher
-- lives by, in seconds. Locks: its own row. Errors: none of its own.
create or replace function maestro.heartbeat_launcher(
    p_launcher_id bigint,
    p_draining boolean,
    p_health jsonb
) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
    select maestro.end_hung_tick();
    with beat as (
        update maestro.launcher as l
           set heartbeat_at = clock_timestamp(), draining = p_draining, health = p_health
         where l.launcher_id = p_launcher_id
        returning l.launcher_id
    )
    select jsonb_build_object(
        'known', exists (select from beat),
        'claim_seconds', maestro.setting('launch_claim_seconds')::integer,
        'confirm_seconds', maestro.setting('launch_confirm_seconds')::integer
    );
$$;
comment on function maestro.heartbeat_launcher(bigint, boolean, jsonb) is
    'Keeps a launcher alive; returns {"known", "claim_seconds", "confirm_seconds"} (settings, in seconds).';
