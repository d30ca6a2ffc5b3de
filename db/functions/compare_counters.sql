-- compare_counters: repair_drift for the tick: an error in it is named and costs the repair alone.
-- Result: {"repaired": rows, "errors": [{"what", "message"}]}. Locks: as repair_drift.
create or replace function maestro.compare_counters(p_tick_id bigint, p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_message text;
    v_state text;
begin
    return jsonb_build_object('repaired', maestro.repair_drift(p_tick_id, p_now), 'errors', '[]'::jsonb);
exception when others then
    get stacked diagnostics v_message = message_text, v_state = returned_sqlstate;
    if left(v_state, 2) in ('40', '53', '54', '55', '57', '58') then
        raise;
    end if;
    return jsonb_build_object(
        'repaired', 0, 'errors', jsonb_build_array(jsonb_build_object('what', 'counters', 'message', v_message))
    );
end
$$;
comment on function maestro.compare_counters(bigint, timestamp with time zone) is
    'Compares counters with procs and repairs them: {"repaired", "errors"}.';
