-- setting_check: refuses a value that the setting's kind, range or choices do not allow.
-- Trigger on maestro.setting; raises QM001 with what is allowed. Stores booleans as true / false.
create or replace function maestro.setting_check() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_allowed text := case new.kind
        when 'boolean' then 'true or false'
        when 'choice' then array_to_string(new.choices, ', ')
        when 'text' then 'any text'
        else format(
            '%s%s%s',
            case new.kind when 'integer' then 'a whole number' else 'a number' end,
            ' from ' || new.min_value, ' to ' || new.max_value
        )
    end;
    v_good boolean;
begin
    if tg_op = 'UPDATE' and new.name <> old.name then
        raise exception using errcode = 'QM001', message = format('setting %s cannot be renamed', old.name);
    end if;
    new.value := trim(new.value);
    v_good := case new.kind
        when 'boolean' then lower(new.value) in ('true', 'false', 'on', 'off', 'yes', 'no', '1', '0')
        when 'integer' then new.value ~ '^[+-]?\d{1,18}$'
        when 'number' then new.value ~ '^[+-]?(\d+\.?\d*|\.\d+)$'
        when 'choice' then new.value = any(new.choices)
        else true
    end;
    if v_good and new.kind in ('integer', 'number') then
        v_good := new.value::numeric >= coalesce(new.min_value, '-infinity')
            and new.value::numeric <= coalesce(new.max_value, 'infinity');
    end if;
    if not v_good then
        raise exception using
            errcode = 'QM001',
            message = format('setting %s cannot be %L', new.name, new.value),
            hint = format('Allowed: %s. Unit: %s.', v_allowed, new.unit);
    end if;
    if new.kind = 'boolean' then
        new.value := new.value::boolean::text;
    end if;
    return new;
end
$$;
comment on function maestro.setting_check() is
    'Trigger of maestro.setting: a bad value is refused with QM001, and the message says what is allowed.';
