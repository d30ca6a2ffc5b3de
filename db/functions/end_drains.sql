-- end_drains: opens hosts again whose drain is over. Called by save_hosts at the boot that a drain asked for, and by
-- undrain_host. A host that a person had locked before the drain stays locked. Locks: host rows, held by the caller.
create or replace function maestro.end_drains(p_hosts text []) returns integer
language sql volatile
set search_path = pg_catalog, public, pg_temp
as $$
    with ended as (
        delete from maestro.host_drain where pk_host = any(p_hosts) returning pk_host
    ),
    forgotten as (
        delete from maestro.host_order where kind = 'restart_idle' and pk_host in (select e.pk_host from ended as e)
    ),
    opened as (
        update host set str_lock_state = 'OPEN', str_lock_source = null
        where pk_host in (select e.pk_host from ended as e)
            and str_lock_state = 'LOCKED' and str_lock_source = 'maestro.drain_host'
    )
    select count(*)::integer from ended;
$$;
comment on function maestro.end_drains(text []) is
    'Ends the drains of these hosts and opens those that the drain had locked; returns the number of drains ended.';
