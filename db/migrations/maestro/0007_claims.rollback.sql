drop function if exists maestro.claim_launches(bigint, integer, bigint);
drop function if exists maestro.living_launchers();
