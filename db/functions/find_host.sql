-- find_host: the host that a person means, by its key or its name, with or without domain. Raises QM002 if there is
-- none.
create or replace function maestro.find_host(p_host text) returns text
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_host text;
begin
    select h.pk_host into v_host
    from host as h
    where h.str_name = p_host or h.pk_host = p_host or h.str_name = maestro.short_host(p_host)
    order by h.str_name = p_host desc, h.pk_host = p_host desc
    limit 1;
    if not found then
        raise exception using
            errcode = 'QM002',
            message = format('no host %s', p_host),
            hint = 'Name a host as maestro host list shows it.';
    end if;
    return v_host;
end
$$;
comment on function maestro.find_host(text) is 'pk_host of the host with this name or key; else QM002.';
