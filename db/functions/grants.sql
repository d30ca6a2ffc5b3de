-- Who may do what. Replayed after the functions; everything not named here is refused.
revoke all on schema maestro from public;
revoke execute on all functions in schema maestro from public;
revoke execute on all procedures in schema maestro from public;

grant usage on schema maestro to maestro_admin, maestro_tick, maestro_launcher, maestro_reader;
