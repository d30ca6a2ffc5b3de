-- top_up_memory: bookings of this tick whose frames failed for memory before get what those ask for, as far as their
-- hosts have it. Called by maestro_tick after the commit; the tick holds the hosts' rows and has just made the procs.
-- Several procs of one host share its idle memory in key order. The trigger on proc takes it off the host.
-- Result: procs raised. Errors: none of its own.
create or replace function maestro.top_up_memory(p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_raised integer := 0;
begin
    if exists (select from maestro.frame_memory) then
        with wanted as (
            select
                p.pk_proc, n.need, h.int_mem_idle as idle,
                sum(n.need) over (partition by p.pk_host order by p.pk_proc) - n.need as before
            from maestro.frame_memory as m
            join proc as p on p.pk_frame = m.pk_frame
            join host as h on h.pk_host = p.pk_host
            cross join lateral (select m.mem - p.int_mem_reserved as need) as n
            where p.ts_booked = p_now and n.need > 0
                and m.updated_at > p_now - make_interval(hours => maestro.setting('frame_memory_hours')::integer)
        )
        update proc as p set
            int_mem_reserved = p.int_mem_reserved + least(w.need, w.idle - w.before),
            int_mem_pre_reserved = p.int_mem_pre_reserved + least(w.need, w.idle - w.before)
        from wanted as w
        where p.pk_proc = w.pk_proc and w.idle > w.before;
        get diagnostics v_raised = row_count;
    end if;
    return v_raised;
end
$$;
comment on function maestro.top_up_memory(timestamp with time zone) is
    'Raises the reservation (KiB) of procs booked at p_now to what their frames ask for, within their hosts'' idle '
    'memory; returns how many.';
