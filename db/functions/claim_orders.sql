-- claim_orders: hand up to p_max host orders (kill a frame, restart when idle) to one launcher.
-- Called by the launchers' orders duty; answered by finish_orders. Oldest first. A claim whose launcher fell silent
-- for launch_claim_seconds is handed on. What the caller itself has claimed is handed to it again: it works its orders
-- off before it asks for more, so the answer to that claim, or to its outcome, was lost.
-- Locks: host_order rows, those that another session holds are skipped. Errors: none of its own.
create or replace function maestro.claim_orders(p_launcher_id bigint, p_max integer) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
    with picked as materialized (
        select o.order_id
          from maestro.host_order as o
         where o.state = 'ready'
            or (o.state = 'claimed' and o.claimed_by = p_launcher_id)
            or (
                o.state = 'claimed'
                and o.claimed_at < now() - make_interval(secs => (select maestro.setting('launch_claim_seconds'))::integer)
                and o.claimed_by <> all((select maestro.living_launchers())::bigint [])
            )
         order by o.order_id
         limit p_max
           for update skip locked
    ),
    claimed as (
        update maestro.host_order as o
           set state = 'claimed', claimed_by = p_launcher_id, claimed_at = clock_timestamp(), attempts = o.attempts + 1
          from picked as k
         where o.order_id = k.order_id
        returning o.*
    )
    select coalesce(jsonb_agg(jsonb_build_object(
               'order_id', c.order_id,
               'kind', c.kind,
               'host_name', h.str_name,
               'dial', d.target,
               'pk_proc', c.pk_proc,
               'pk_frame', c.pk_frame,
               'reason', c.reason,
               'attempts', c.attempts
           ) order by c.order_id), '[]')
      from claimed as c
      left join host as h on h.pk_host = c.pk_host
      left join maestro.host_dial as d on d.str_name = h.str_name;
$$;
comment on function maestro.claim_orders(bigint, integer) is
    'Claims up to p_max host orders for a launcher, oldest first; an array of {"order_id", "kind", "host_name", '
    '"dial", "pk_proc", "pk_frame", "reason", "attempts"}. host_name is null when the host is gone.';
