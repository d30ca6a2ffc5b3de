-- report_list: a report argument as an array of objects. An object alone is an array of one.
-- Raises QM001 if it is neither, or if an element is no object. p_what names the message type.
create or replace function maestro.report_list(p_report jsonb, p_what text) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_list jsonb := case jsonb_typeof(p_report) when 'object' then jsonb_build_array(p_report) else p_report end;
    v_type text;
begin
    if jsonb_typeof(v_list) is distinct from 'array' then
        raise exception using
            errcode = 'QM001',
            message = format('%s cannot be %s', p_what, coalesce(jsonb_typeof(p_report), 'null')),
            hint = 'Allowed: a JSON object, or an array of them.';
    end if;
    select jsonb_typeof(e) into v_type from jsonb_array_elements(v_list) as e where jsonb_typeof(e) <> 'object' limit 1;
    if found then
        raise exception using
            errcode = 'QM001',
            message = format('%s: an element cannot be a %s', p_what, v_type),
            hint = 'Allowed: JSON objects.';
    end if;
    return v_list;
end
$$;
comment on function maestro.report_list(jsonb, text) is
    'The reports in p_report as an array; QM001 unless it is an object or an array of objects.';
