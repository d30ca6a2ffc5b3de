-- report_text: one key out of a report that must be there. Raises QM001 if it is absent, empty or too long for a key.
create or replace function maestro.report_text(p_value text, p_field text, p_where text) returns text
language plpgsql immutable
as $$
begin
    if coalesce(p_value, '') = '' then
        raise exception using
            errcode = 'QM001',
            message = format('%s: %s is missing', p_where, p_field),
            hint = 'It must name the booking as it was launched.';
    end if;
    if length(p_value) > 64 then
        raise exception using
            errcode = 'QM001',
            message = format('%s: %s cannot be %L', p_where, p_field, left(p_value, 64)),
            hint = 'Allowed: at most 64 characters.';
    end if;
    return p_value;
end
$$;
comment on function maestro.report_text(text, text, text) is 'A key from a report; QM001 if it is absent or too long.';
