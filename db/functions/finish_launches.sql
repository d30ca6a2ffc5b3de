-- finish_launches: what became of launches that a launcher had claimed.
-- Called by the launchers' launch duty. p_results: [{"launch_id", "outcome", "error", "barred_s"}], outcome one of
--   launched  the host has it: the row is deleted
--   refused   the host certainly does not run it: the booking is undone (frame WAITING with 299, no retry spent), the
--             row stays with its error; "barred_s": for so many seconds at most the host gets no other frame of that
--             size (see refuse_sizes)
--   retry     back to ready, for any launcher; the next one asks the host before it sends
--   unsent    back to ready as if never claimed: nothing has been sent
--   absent    back to ready as if never sent: the host was asked, and certainly does not have it
-- Only rows that this launcher holds change; the others were reclaimed meanwhile and are counted as stale.
-- Locks: the launch rows in order of launch_id, the tick's lock, host_refusal rows, then as maestro.unbook.
-- Errors: QM001 for an outcome that does not exist.
create or replace function maestro.finish_launches(p_launcher_id bigint, p_results jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_bad text;
    v_ids bigint [];
    v_launched bigint [];
    v_refused text [];
    v_stale integer;
    v_unbooked integer := 0;
begin
    select r.outcome into v_bad
      from jsonb_to_recordset(p_results) as r (outcome text)
     where r.outcome is null or r.outcome not in ('launched', 'refused', 'retry', 'unsent', 'absent')
     limit 1;
    if found then
        raise exception using
            errcode = 'QM001',
            message = format('launch outcome cannot be %L', v_bad),
            hint = 'Allowed: launched, refused, retry, unsent, absent.';
    end if;

    select coalesce(array_agg(held.launch_id), '{}'),
           coalesce(array_agg(held.launch_id) filter (where held.outcome = 'launched'), '{}'),
           coalesce(array_agg(held.pk_proc order by held.pk_proc) filter (where held.outcome = 'refused'), '{}')
      into v_ids, v_launched, v_refused
      from (
          select l.launch_id, l.pk_proc, r.outcome
            from jsonb_to_recordset(p_results) as r (launch_id bigint, outcome text)
            join maestro.launch as l on l.launch_id = r.launch_id
           where l.state = 'claimed' and l.claimed_by = p_launcher_id
           order by l.launch_id
             for update of l
      ) as held;
    v_stale := jsonb_array_length(p_results) - cardinality(v_ids);

    -- A completion in the inbox means that it ran after all; the tick settles the booking by that.
    v_refused := array(
        select r.pk_proc
          from unnest(v_refused) as r (pk_proc)
         where not exists (select from maestro.completion as c where c.pk_proc = r.pk_proc)
         order by r.pk_proc
    );
    if cardinality(v_refused) > 0 then
        perform maestro.take_tick_lock();
        perform maestro.refuse_sizes(
            array_agg(l.pk_proc), array_agg(r.barred_s), now()
        )
        from jsonb_to_recordset(p_results) as r (launch_id bigint, barred_s double precision)
        join maestro.launch as l on l.launch_id = r.launch_id
        where r.barred_s > 0 and l.pk_proc = any(v_refused);
        v_unbooked := maestro.unbook(v_refused, 299, now());
    end if;

    delete from maestro.launch as l where l.launch_id = any(v_launched);
    if cardinality(v_launched) < cardinality(v_ids) then
        update maestro.launch as l
           set state = case r.outcome when 'refused' then 'refused' else 'ready' end,
               attempts = case r.outcome when 'absent' then 0 when 'unsent' then l.attempts - 1 else l.attempts end,
               claimed_by = null, claimed_at = null, error = left(r.error, 1000)
          from jsonb_to_recordset(p_results) as r (launch_id bigint, outcome text, error text)
         where l.launch_id = r.launch_id and r.outcome <> 'launched' and l.launch_id = any(v_ids);
    end if;

    return jsonb_build_object('finished', cardinality(v_ids), 'unbooked', v_unbooked, 'stale', v_stale);
end
$$;
comment on function maestro.finish_launches(bigint, jsonb) is
    'Stores launch outcomes ([{"launch_id", "outcome": launched|refused|retry|unsent|absent, "error", "barred_s"}]) of '
    'rows that the launcher holds; returns {"finished", "unbooked", "stale"}. A refusal undoes the booking without a '
    'retry spent.';
