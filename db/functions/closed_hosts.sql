-- closed_hosts: hosts that may not be booked now, by name, and why. The tick asks only while tags name a host that the
-- snapshot lacks. Locks nothing.
create or replace function maestro.closed_hosts() returns table (str_name text, why text)
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select
        h.str_name,
        case
            when hs.str_state is distinct from 'UP' then 'host ' || lower(replace(coalesce(hs.str_state, 'down'), '_', ' '))
            when exists (select from maestro.host_drain as d where d.pk_host = h.pk_host) then 'host drains'
            when h.str_lock_state = 'NIMBY_LOCKED' then 'host in use by its owner'
            else 'host locked'
        end
    from host as h
    left join host_stat as hs on hs.pk_host = h.pk_host
    where h.str_lock_state <> 'OPEN' or hs.str_state is distinct from 'UP';
$$;
comment on function maestro.closed_hosts() is 'Hosts that are not UP and OPEN, by name, and why. Locks nothing.';
