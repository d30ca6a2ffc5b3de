-- maestro_tick: plans and books the whole farm once. Anyone with role maestro_tick may call it, as often as they like.
--
-- dry_run: plan, then roll everything back. seed: of the lottery; null draws one. Result: see docs (one jsonb).
-- Two callers never plan together: the second is answered {"status": "locked"} at once. The lock is the transaction's,
-- so no pooler and no dead client can keep it. An error rolls the tick back and is recorded in maestro.tick.
create or replace function public.maestro_tick(dry_run boolean default false, seed bigint default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    -- The bytes of "Maestro": a key of our own among the database's advisory locks.
    v_lock constant bigint := x'4d61657374726f'::bigint;
    v_now timestamptz := clock_timestamp();
    v_seed bigint := coalesce(seed, floor(random() * 9007199254740992)::bigint);
    v_tick_id bigint;
    v_answer jsonb;
    v_text text;
    v_detail text;
begin
    if not pg_try_advisory_xact_lock(v_lock) then
        perform maestro.end_hung_tick();
        return jsonb_build_object('status', 'locked', 'dry_run', dry_run);
    end if;
    perform maestro.guard_tick_lock();
    if maestro.setting('mode') = 'off' then
        return jsonb_build_object('status', 'off', 'dry_run', dry_run);
    end if;

    v_tick_id := nextval(pg_get_serial_sequence('maestro.tick', 'tick_id'));
    begin
        v_answer := maestro.run_phases(v_tick_id, v_now, v_seed) || jsonb_build_object('dry_run', dry_run);
        if dry_run then
            raise exception using errcode = 'QM900', message = 'dry run', detail = v_answer::text;
        end if;
        insert into maestro.tick (tick_id, started_at, seed, status, planned, committed, ms, stats)
        overriding system value
        values (
            v_tick_id, v_now, v_seed, 'planned', (v_answer ->> 'planned')::integer,
            (v_answer ->> 'committed')::integer, (v_answer #>> '{ms,total}')::numeric, v_answer
        );
    exception
        when sqlstate 'QM900' then
            get stacked diagnostics v_text = pg_exception_detail;
            v_answer := v_text::jsonb;
        -- Whatever went wrong, the next tick starts clean, and the farm's owner reads what it was. A cancel is obeyed,
        -- unless it came because the tick hung.
        when query_canceled or others then
            if sqlstate = '57014' and clock_timestamp() < v_now
                + make_interval(secs => maestro.setting('tick_hang_seconds')::integer)
            then
                raise;
            end if;
            get stacked diagnostics v_text = message_text, v_detail = pg_exception_context;
            v_answer := jsonb_build_object(
                'status', 'error', 'tick_id', v_tick_id, 'dry_run', dry_run, 'seed', v_seed,
                'errors', jsonb_build_array(jsonb_build_object('what', 'tick', 'message', v_text, 'where', v_detail))
            );
            if not dry_run then
                insert into maestro.tick (tick_id, started_at, seed, status, stats)
                overriding system value
                values (v_tick_id, v_now, v_seed, 'error', v_answer);
            end if;
    end;
    return v_answer;
end
$$;
comment on function public.maestro_tick(boolean, bigint) is
    'One tick of the scheduler: drains completions, sweeps, plans the whole farm and books it in this transaction. '
    'Returns what it did as jsonb; status is planned, locked, off or error.';
