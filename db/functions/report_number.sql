-- report_number: one whole number out of a report, checked.
-- Called by the report functions. p_value: as it stands in the JSON (a number, or a string, as protobuf writes int64);
-- null is protobuf's default, 0. p_where names the report for the message.
-- Raises QM001 if it is no whole number or lies outside p_min .. p_max.
create or replace function maestro.report_number(
    p_value text, p_field text, p_where text,
    p_min bigint default 0, p_max bigint default 1000000000000000
) returns bigint
language plpgsql immutable
as $$
declare
    v_number bigint;
begin
    if p_value is null then
        return 0;
    end if;
    if p_value ~ '^[+-]?\d{1,18}$' then
        v_number := p_value::bigint;
        if v_number between p_min and p_max then
            return v_number;
        end if;
    end if;
    raise exception using
        errcode = 'QM001',
        message = format('%s: %s cannot be %s', p_where, p_field, left(p_value, 40)),
        hint = format('Allowed: a whole number from %s to %s.', p_min, p_max);
end
$$;
comment on function maestro.report_number(text, text, text, bigint, bigint) is
    'A whole number from a report, 0 if absent; QM001 names the field and the range if it is none.';
