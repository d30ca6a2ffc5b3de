-- return_claims: launches that a launcher has claimed without knowing it go back to ready.
-- Called by the launchers' launch duty before it claims again, when the answer to its last claim was lost: the claim
-- may have been stored all the same, and a living launcher's claims never expire. p_held: the launches that it does
-- hold. Whoever claims the others next asks the host before sending, for their attempts are counted.
-- Locks: the launch rows. Result: launches returned. Errors: none of its own.
create or replace function maestro.return_claims(p_launcher_id bigint, p_held bigint []) returns bigint
language sql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
    with returned as (
        update maestro.launch as l set state = 'ready', claimed_by = null, claimed_at = null
        where l.state = 'claimed' and l.claimed_by = p_launcher_id and l.launch_id <> all(p_held)
        returning l.launch_id
    )
    select count(*) from returned;
$$;
comment on function maestro.return_claims(bigint, bigint []) is
    'Gives back the launches that a launcher claimed but is not among those it knows to hold; returns how many.';
