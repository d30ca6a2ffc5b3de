-- release_procs: deletes procs and gives back what they hold to their hosts and to whoever was charged for them.
-- Called by unbook and the sweep, inside the tick or under take_tick_lock. Frames are the caller's business.
-- Locks, in this order and each sorted by key: proc, host, and as delete_procs. Errors: none of its own.
create or replace function maestro.release_procs(p_procs text []) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
begin
    perform from proc where pk_proc = any(p_procs) order by pk_proc for update;
    perform from host as h
    where h.pk_host in (select p.pk_host from proc as p where p.pk_proc = any(p_procs))
    order by h.pk_host for no key update;

    return maestro.delete_procs(p_procs);
end
$$;
comment on function maestro.release_procs(text []) is
    'Deletes the procs p_procs and refunds host, subscription, layer_resource, job_resource, folder_resource and point '
    'from the deleted rows; returns how many there were. Locks in this order, each sorted by key.';
