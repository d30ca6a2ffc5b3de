-- report_flag: one truth value out of a report, false if absent. Raises QM001 if it is none.
create or replace function maestro.report_flag(p_value text, p_field text, p_where text) returns boolean
language plpgsql immutable
as $$
begin
    if p_value is null then
        return false;
    end if;
    if lower(p_value) in ('true', 'false') then
        return p_value::boolean;
    end if;
    raise exception using
        errcode = 'QM001',
        message = format('%s: %s cannot be %s', p_where, p_field, left(p_value, 40)),
        hint = 'Allowed: true or false.';
end
$$;
comment on function maestro.report_flag(text, text, text) is 'A truth value from a report, false if absent; else QM001.';
