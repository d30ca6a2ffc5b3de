-- leave_launcher: a launcher that ends says so; its row goes, and what it still holds is free at once.
-- Called by a launcher's last heartbeat. Answer: how many claims it left behind.
-- Locks: its launch and host_order rows, its own row. Errors: none of its own.
create or replace function maestro.leave_launcher(p_launcher_id bigint) returns integer
language sql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
    with held as (
        select l.launch_id from maestro.launch as l
         where l.state = 'claimed' and l.claimed_by = p_launcher_id
         order by l.launch_id
           for update
    ),
    launches as (
        update maestro.launch as l
           set state = 'ready', claimed_by = null, claimed_at = null, error = 'its launcher ended'
          from held
         where l.launch_id = held.launch_id
        returning l.launch_id
    ),
    orders as (
        update maestro.host_order as o
           set state = 'ready', claimed_by = null, claimed_at = null
         where o.state = 'claimed' and o.claimed_by = p_launcher_id
        returning o.order_id
    ),
    gone as (
        delete from maestro.launcher as l where l.launcher_id = p_launcher_id
    )
    select (select count(*) from launches)::integer + (select count(*) from orders)::integer;
$$;
comment on function maestro.leave_launcher(bigint) is
    'Removes a launcher that ends and frees its claims; returns how many claims it had left.';
