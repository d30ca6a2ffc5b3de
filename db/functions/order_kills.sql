-- order_kills: orders the death of runs that should not be, found in host reports.
-- Called by report_status. Reasons, first that holds:
--   the booking holds another frame, or belongs to another host
--   the job is over, or an operator wants the frame back (repeats an order that came before the launch)
--   the frame is booked elsewhere
--   the layer's timeout, or its timeout without a log line, has passed
--   no booking at all, once the run is older than frame_verification_grace_seconds (or of unknown age)
-- An order that stands is not written twice. Locks: lock_orders, without waiting: nothing is ordered while a tick or
-- a person orders kills; then the new rows. Result: orders written.
create or replace function maestro.order_kills(p_runs maestro.run_report [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Runs are joined by their keys to tables that are large.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_grace constant interval := make_interval(
        secs => (select maestro.setting('frame_verification_grace_seconds'))::integer
    );
    v_orders integer;
begin
    if not maestro.lock_orders(false) then
        return 0;
    end if;
    insert into maestro.host_order (kind, pk_host, pk_proc, pk_frame, reason)
    select 'kill', k.pk_host, k.pk_proc, k.pk_frame, k.reason
    from (
        select
            h.pk_host, r.pk_proc, r.pk_frame,
            case
                when p.pk_proc is not null and (p.pk_frame is distinct from r.pk_frame or p.pk_host <> h.pk_host)
                    then 'the booking is not for this frame on this host'
                when p.pk_proc is not null and j.str_state is distinct from 'PENDING' then 'the job is over'
                when w.pk_proc is not null then 'an operator took the frame back'
                when p.pk_proc is null and o.pk_proc is not null then 'the frame is booked elsewhere'
                when p.pk_proc is null and (r.started_at is null or r.started_at <= p_now - v_grace)
                    then 'nobody booked this run'
                when p.pk_proc is not null and l.int_timeout > 0
                    and r.started_at < p_now - make_interval(mins => l.int_timeout) then 'the layer''s timeout is over'
                when p.pk_proc is not null and l.int_timeout_llu > 0
                    and r.llu_at < p_now - make_interval(mins => l.int_timeout_llu) then 'the log is silent'
            end as reason
        from unnest(p_runs) as r
        join host as h on h.str_name = r.host_name
        left join proc as p on p.pk_proc = r.pk_proc
        left join proc as o on o.pk_frame = r.pk_frame
        left join job as j on j.pk_job = p.pk_job
        left join layer as l on l.pk_layer = p.pk_layer
        left join maestro.frame_wish as w on w.pk_proc = p.pk_proc
    ) as k
    where k.reason is not null
    order by k.pk_host, k.pk_proc, k.pk_frame
    on conflict do nothing;
    get diagnostics v_orders = row_count;
    if v_orders > 0 then
        perform pg_notify('maestro_order', '');
    end if;
    return v_orders;
end
$$;
comment on function maestro.order_kills(maestro.run_report [], timestamp with time zone) is
    'Writes kill orders for reported runs that no booking covers, whose job is over or whose timeout has passed; '
    'returns how many.';
