-- undrain_host: ends a drain and opens the host, unless a person had locked it before. An operator's verb.
-- A restart that was ordered but not sent is forgotten. Result: pk_host. Errors: QM002 no such host, QM003 no drain.
-- Locks: the tick's lock, then host_drain and host rows.
create or replace function maestro.undrain_host(str_name text) returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_host text;
begin
    perform maestro.take_tick_lock();
    v_host := maestro.find_host($1);
    if maestro.end_drains(array[v_host]) = 0 then
        raise exception using
            errcode = 'QM003',
            message = format('host %s is not being drained', $1),
            hint = 'maestro.unlock_host opens a host that is locked.';
    end if;
    return v_host;
end
$$;
comment on function maestro.undrain_host(text) is
    'Ends the drain of a host (name or id) and opens it; returns its pk_host. QM002, QM003: it is not being drained.';
