-- finish_unconfirmed: what the hosts said about bookings from claim_unconfirmed.
-- Called by the launchers' verify duty. p_results: [{"pk_proc", "outcome", "error"}], outcome one of
--   running  the host runs it for this booking: confirmed as by a report
--   lost     the host does not run it and nothing tells how it ended: unbooked (frame WAITING with 301, no retry
--            spent), unless its completion has reached the inbox meanwhile
-- Bookings that are gone meanwhile are passed over. A frame whose log tells how it ended is reported with
-- report_completion instead.
-- Locks: the tick's lock, procs in order of pk_proc, then as maestro.unbook. Errors: QM001 for an outcome that does not
-- exist.
create or replace function maestro.finish_unconfirmed(
    p_results jsonb,
    p_now timestamptz default now()
) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_bad text;
    v_lost text [];
    v_confirmed integer;
    v_unbooked integer := 0;
begin
    select r.outcome into v_bad
      from jsonb_to_recordset(p_results) as r (outcome text)
     where r.outcome is null or r.outcome not in ('running', 'lost')
     limit 1;
    if found then
        raise exception using
            errcode = 'QM001',
            message = format('verification outcome cannot be %L', v_bad),
            hint = 'Allowed: running, lost.';
    end if;

    -- Before any proc is locked: unbook waits for the tick, and the tick's drain would wait for our procs.
    perform maestro.take_tick_lock();
    with held as (
        select p.pk_proc
          from proc as p
          join jsonb_to_recordset(p_results) as r (pk_proc text, outcome text) on r.pk_proc = p.pk_proc
         where r.outcome = 'running'
         order by p.pk_proc
           for update of p
    )
    update proc as p set ts_ping = p_now from held where p.pk_proc = held.pk_proc;
    get diagnostics v_confirmed = row_count;

    select coalesce(array_agg(r.pk_proc order by r.pk_proc), '{}') into v_lost
      from jsonb_to_recordset(p_results) as r (pk_proc text, outcome text)
     where r.outcome = 'lost'
       and not exists (select from maestro.completion as c where c.pk_proc = r.pk_proc);
    if cardinality(v_lost) > 0 then
        v_unbooked := maestro.unbook(v_lost, 301, p_now);
    end if;

    return jsonb_build_object('confirmed', v_confirmed, 'unbooked', v_unbooked);
end
$$;
comment on function maestro.finish_unconfirmed(jsonb, timestamp with time zone) is
    'Stores what hosts said about unconfirmed bookings ([{"pk_proc", "outcome": running|lost}]); '
    'returns {"confirmed", "unbooked"}.';
