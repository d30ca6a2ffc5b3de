-- core_points: core points of an amount of cores (100 = one core). The one place in SQL that converts them.
create or replace function maestro.core_points(p_cores numeric) returns integer
language sql immutable
as $$
    select round(p_cores * 100)::integer;
$$;
comment on function maestro.core_points(numeric) is 'Core points of an amount of cores: 1.5 cores are 150.';
