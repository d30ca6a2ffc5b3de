-- report_host_name: the short name of the host that a report is about.
-- Raises QM001 if the report names none or one too long to store. p_what names the message type.
create or replace function maestro.report_host_name(p_host jsonb, p_what text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := maestro.short_host(trim(p_host ->> 'name'));
begin
    if coalesce(v_name, '') = '' then
        raise exception using
            errcode = 'QM001',
            message = format('%s without a host name', p_what),
            hint = 'host.name must name the host that reports.';
    end if;
    if length(v_name) > 45 or v_name ~ '\s' then
        raise exception using
            errcode = 'QM001',
            message = format('%s: host name cannot be %L', p_what, left(v_name, 60)),
            hint = 'Allowed: at most 45 characters before the first dot, without blanks.';
    end if;
    return v_name;
end
$$;
comment on function maestro.report_host_name(jsonb, text) is 'Short name of the reporting host; QM001 if there is none.';
