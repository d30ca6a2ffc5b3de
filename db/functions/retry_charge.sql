-- retry_charge: 1 if starting a frame whose last run ended with p_exit_status counts as a retry, else 0.
-- Not counted: never ran (-1), failed launch (256), skip retry (286), cleared (299), orphan (301), failed kill (302),
-- host down (399). Source: OpenCue's rule for int_retries.
create or replace function maestro.retry_charge(p_exit_status bigint) returns integer
language sql immutable
as $$
    select case when p_exit_status in (-1, 256, 286, 299, 301, 302, 399) then 0 else 1 end;
$$;
comment on function maestro.retry_charge(bigint) is
    'Retries (0 or 1) that the next start of a frame costs after a run that ended with this exit status.';
