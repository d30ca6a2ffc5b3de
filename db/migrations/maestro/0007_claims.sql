-- depends: 0006_refusals
--
-- claim_launches takes one argument more; with a default it would stand beside the old one and make calls ambiguous.
drop function if exists maestro.claim_launches(bigint, integer);
drop function if exists maestro.launcher_is_alive(bigint);
