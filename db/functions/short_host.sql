-- short_host: the name under which a host is known: its reported name up to the first dot; addresses stay whole.
create or replace function maestro.short_host(p_name text) returns text
language sql immutable
as $$
    select case
        when p_name ~ '^\d{1,3}(\.\d{1,3}){3}$' or p_name like '%:%' then p_name
        else split_part(p_name, '.', 1)
    end;
$$;
comment on function maestro.short_host(text) is 'Host name as the tables know it: without its domain, addresses whole.';
