-- lock_orders: the right to write host orders in this transaction. An order that stands is never written twice, so a
-- writer waits for another that has just written the same one; whoever waits must not hold what the other wants.
-- Under the tick's lock (p_wait): waits until no report writes orders, and keeps reports from it until the end; always
-- true. Reports hold rows that a tick may want, so they only ask: false means that they order nothing this time; their
-- hosts report again within seconds. Locks: an advisory lock of its own. Errors: none.
create or replace function maestro.lock_orders(p_wait boolean) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    -- The bytes of "Orders".
    v_lock constant bigint := x'4f7264657273'::bigint;
begin
    if p_wait then
        perform pg_advisory_xact_lock(v_lock);
        return true;
    end if;
    return pg_try_advisory_xact_lock_shared(v_lock);
end
$$;
comment on function maestro.lock_orders(boolean) is
    'The right to write host orders until the transaction ends: waited for (true), or only asked for (false).';
