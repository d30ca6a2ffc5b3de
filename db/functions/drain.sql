-- drain: the tick's phase 1: applies the completions that wait in the inbox, oldest first, and takes memory samples.
-- Called by run_phases. At most completions_per_tick_max rows; the rest waits for the next tick.
--
-- A batch is one subtransaction. If it raises, it is applied by halves until the completion that is to blame stands
-- alone: that one goes to maestro.fault and out of the inbox, the others are applied. Errors that are the server's
-- (deadlock, cancel, out of memory) blame no completion and end the call; the inbox keeps its rows.
-- Result: {"drained": applied, "stale": completions that changed nothing, "finished_jobs": n,
-- "errors": [{"what", "message"}]}. Locks: the tick's lock, inbox rows, then as apply_completions.
create or replace function maestro.drain(p_now timestamptz default now()) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_ids bigint [];
    v_from integer [];
    v_to integer [];
    v_low integer;
    v_high integer;
    v_top integer;
    v_result jsonb;
    v_drained integer := 0;
    v_stale integer := 0;
    v_finished integer := 0;
    v_errors jsonb := '[]';
    v_message text;
    v_state text;
begin
    perform maestro.take_tick_lock();
    perform maestro.take_samples();
    v_ids := array(
        select c.completion_id
        from maestro.completion as c
        order by c.completion_id
        limit maestro.setting('completions_per_tick_max')::integer
        for update skip locked
    );
    -- Parts of v_ids still to be applied, as a stack of [from, to].
    if cardinality(v_ids) > 0 then
        v_from := array[1];
        v_to := array[cardinality(v_ids)];
    end if;
    loop
        v_top := coalesce(cardinality(v_from), 0);
        exit when v_top = 0;
        v_low := v_from[v_top];
        v_high := v_to[v_top];
        v_from := v_from[1:v_top - 1];
        v_to := v_to[1:v_top - 1];
        begin
            v_result := maestro.apply_completions(v_ids[v_low:v_high], p_now);
            v_drained := v_drained + (v_result ->> 'drained')::integer;
            v_stale := v_stale + (v_result ->> 'stale')::integer;
            v_finished := v_finished + (v_result ->> 'finished_jobs')::integer;
        exception when others then
            get stacked diagnostics v_message = message_text, v_state = returned_sqlstate;
            if left(v_state, 2) in ('40', '53', '54', '55', '57', '58') then
                raise;
            end if;
            if v_low < v_high then
                v_from := v_from || array[(v_low + v_high) / 2 + 1, v_low];
                v_to := v_to || array[v_high, (v_low + v_high) / 2];
            else
                with removed as (
                    delete from maestro.completion as c where c.completion_id = v_ids[v_low] returning c.*
                )
                insert into maestro.fault (at, kind, detail)
                select p_now, 'completion', jsonb_build_object('error', v_message, 'completion', to_jsonb(r))
                from removed as r;
                v_errors := v_errors || jsonb_build_object(
                    'what', format('completion %s', v_ids[v_low]), 'message', v_message
                );
            end if;
        end;
    end loop;
    return jsonb_build_object(
        'drained', v_drained, 'stale', v_stale, 'finished_jobs', v_finished, 'errors', v_errors
    );
end
$$;
comment on function maestro.drain(timestamp with time zone) is
    'Applies completions from the inbox, oldest first: {"drained", "stale", "finished_jobs", "errors"}. One bad '
    'completion costs the others nothing. Takes the tick''s lock.';
