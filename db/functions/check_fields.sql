-- check_fields: names what is wrong with one message of a report. Called once a quick reading has failed.
-- p_key: names of a field that must be there (either spelling). p_numbers: fields that must be whole numbers, p_min or
-- more.
-- Raises QM001 for the first that is not as it should be; else does nothing.
create or replace function maestro.check_fields(
    p_message jsonb, p_where text, p_key text [], p_numbers text [], p_min bigint default 0
) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text;
begin
    if p_key is not null then
        perform maestro.report_text(coalesce(p_message ->> p_key[1], p_message ->> p_key[2]), p_key[1], p_where);
    end if;
    foreach v_name in array p_numbers loop
        perform maestro.report_number(p_message ->> v_name, v_name, p_where, p_min);
    end loop;
end
$$;
comment on function maestro.check_fields(jsonb, text, text [], text [], bigint) is
    'Raises QM001 for the first field of a message that is missing or out of range; p_where names the message.';
