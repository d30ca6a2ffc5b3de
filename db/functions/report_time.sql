-- report_time: a moment out of a report: seconds since 1970 or ISO 8601; null is p_default. p_where names the report.
-- Raises QM001 if it is neither.
create or replace function maestro.report_time(
    p_value jsonb, p_field text, p_where text, p_default timestamptz
) returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_value is null or jsonb_typeof(p_value) = 'null' then
        return p_default;
    end if;
    if p_value #>> '{}' ~ '^\d{1,12}(\.\d+)?$' then
        return to_timestamp((p_value #>> '{}')::double precision);
    end if;
    return (p_value #>> '{}')::timestamptz;
exception
    when datetime_field_overflow or invalid_datetime_format or invalid_text_representation then
        raise exception using
            errcode = 'QM001',
            message = format('%s: %s cannot be %s', p_where, p_field, left(p_value::text, 60)),
            hint = 'Allowed: seconds since 1970, or a time as in ISO 8601 with its zone.';
end
$$;
comment on function maestro.report_time(jsonb, text, text, timestamp with time zone) is
    'A moment from a report, p_default if absent; QM001 if it is none.';
