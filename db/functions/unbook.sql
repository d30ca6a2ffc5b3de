-- unbook: undoes bookings: their frames wait again, or become what was wished for them, and their procs are released.
-- Called by launchers for refused launches (299) and lost runs (301), by the sweep for orphans (301) and lost hosts
-- (399), and by operator verbs for launches that nobody has taken yet (299). No usage is counted and no retry spent.
-- A frame changes only while it is RUNNING and held by the proc; a proc whose frame is not is released all the same.
-- Locks: the tick's lock first, then proc, host, layer_stat, job_stat, frame and as release_procs; each sorted by key.
-- Result: procs released. Errors: none of its own.
create or replace function maestro.unbook(
    p_procs text [], p_exit_status integer, p_now timestamptz default now()
) returns integer
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_frames text [];
    v_eaten text [];
    v_layers text [];
    v_released integer;
begin
    if coalesce(cardinality(p_procs), 0) = 0 then
        return 0;
    end if;
    perform maestro.take_tick_lock();
    perform from proc where pk_proc = any(p_procs) order by pk_proc for update;
    perform from host as h
    where h.pk_host in (select p.pk_host from proc as p where p.pk_proc = any(p_procs))
    order by h.pk_host for no key update;
    v_frames := array(select p.pk_frame from proc as p where p.pk_proc = any(p_procs) and p.pk_frame is not null);
    perform maestro.lock_frames(v_frames);

    with stopped as (
        update frame as f set
            str_state = coalesce(w.state, 'WAITING'),
            int_exit_status = case w.state when 'EATEN' then 506 else p_exit_status end,
            str_checkpoint_state = 'DISABLED',
            ts_stopped = p_now,
            ts_updated = p_now,
            int_version = f.int_version + 1
        from proc as p
        left join maestro.frame_wish as w on w.pk_proc = p.pk_proc
        where p.pk_proc = any(p_procs) and f.pk_frame = p.pk_frame and f.str_state = 'RUNNING'
        returning f.pk_frame, f.pk_layer, w.state
    )
    select array_agg(s.pk_frame), array_agg(distinct s.pk_layer) into v_eaten, v_layers
    from stopped as s where s.state = 'EATEN';

    v_released := maestro.release_procs(p_procs);
    if v_eaten is not null then
        perform maestro.settle(maestro.releasing_frames(v_eaten), v_layers, p_now);
    end if;
    return v_released;
end
$$;
comment on function maestro.unbook(text [], integer, timestamp with time zone) is
    'Undoes the bookings p_procs: RUNNING frames go to WAITING with p_exit_status (or to what was wished for them), no '
    'usage, no retry; procs are released and refunded. Returns procs released. Takes the tick''s lock.';
