-- finish_orders: what became of host orders that a launcher had claimed.
-- Called by the launchers' orders duty. p_results: [{"order_id", "outcome", "error"}], outcome one of
--   done   carried out, or nothing left to do: the row is deleted
--   failed given up (the host cannot be reached); the row is deleted, the next report of the host orders it again
--   retry  back to ready, for any launcher
-- Only rows that this launcher holds change; the others are counted as stale.
-- Locks: the host_order rows. Errors: QM001 for an outcome that does not exist.
create or replace function maestro.finish_orders(p_launcher_id bigint, p_results jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_bad text;
    v_deleted integer;
    v_returned integer;
begin
    select r.outcome into v_bad
      from jsonb_to_recordset(p_results) as r (outcome text)
     where r.outcome is null or r.outcome not in ('done', 'failed', 'retry')
     limit 1;
    if found then
        raise exception using
            errcode = 'QM001',
            message = format('order outcome cannot be %L', v_bad),
            hint = 'Allowed: done, failed, retry.';
    end if;

    delete from maestro.host_order as o
     using jsonb_to_recordset(p_results) as r (order_id bigint, outcome text)
     where o.order_id = r.order_id and r.outcome <> 'retry' and o.state = 'claimed' and o.claimed_by = p_launcher_id;
    get diagnostics v_deleted = row_count;

    update maestro.host_order as o
       set state = 'ready', claimed_by = null, claimed_at = null, error = left(r.error, 1000)
      from jsonb_to_recordset(p_results) as r (order_id bigint, outcome text, error text)
     where o.order_id = r.order_id and r.outcome = 'retry' and o.state = 'claimed' and o.claimed_by = p_launcher_id;
    get diagnostics v_returned = row_count;

    return jsonb_build_object(
        'finished', v_deleted + v_returned,
        'stale', jsonb_array_length(p_results) - v_deleted - v_returned
    );
end
$$;
comment on function maestro.finish_orders(bigint, jsonb) is
    'Stores outcomes ([{"order_id", "outcome": done|failed|retry, "error"}]) of host orders that the launcher holds; '
    'returns {"finished", "stale"}.';
