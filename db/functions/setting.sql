-- setting: one setting's value as text. Callers cast it; setting_check has made the cast safe.
create or replace function maestro.setting(p_name text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select s.value from maestro.setting as s where s.name = p_name;
$$;
comment on function maestro.setting(text) is 'Value of the setting p_name as text, in the unit that maestro.setting names.';
