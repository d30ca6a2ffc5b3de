-- unlock_host: the host takes frames again. An operator's verb. Result: pk_host.
-- Errors: QM002 no such host, QM003 it is being drained. Locks: the host row.
create or replace function maestro.unlock_host(p_host text) returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_host text := maestro.find_host(p_host);
begin
    if exists (select from maestro.host_drain where pk_host = v_host) then
        raise exception using
            errcode = 'QM003',
            message = format('host %s is being drained', p_host),
            hint = 'maestro.undrain_host ends the drain and opens the host.';
    end if;
    update host set str_lock_state = 'OPEN', str_lock_source = null where pk_host = v_host;
    return v_host;
end
$$;
comment on function maestro.unlock_host(text) is
    'Opens a locked host (name or id); returns its pk_host. QM002: no such host, QM003: it is being drained.';
