-- wish_frames: what becomes of running frames once their killed runs have ended, WAITING or EATEN; the last wish
-- counts.
-- Called by retry_frames, eat_frames and mark_done under take_tick_lock. Locks: procs sorted by key, then as take_back.
-- Result: runs that are being killed.
create or replace function maestro.wish_frames(
    p_frames text [], p_state text, p_reason text, p_now timestamptz
) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_procs text [] := array(
        select p.pk_proc
        from proc as p join frame as f on f.pk_frame = p.pk_frame
        where p.pk_frame = any(p_frames) and f.str_state = 'RUNNING'
        order by p.pk_proc
    );
begin
    if cardinality(v_procs) = 0 then
        return 0;
    end if;
    perform from proc where pk_proc = any(v_procs) order by pk_proc for update;
    insert into maestro.frame_wish (pk_proc, state, requested_at)
    select w.pk_proc, p_state, p_now from unnest(v_procs) as w (pk_proc)
    on conflict (pk_proc) do update set state = excluded.state, requested_at = excluded.requested_at;
    return maestro.take_back(v_procs, p_reason, p_now);
end
$$;
comment on function maestro.wish_frames(text [], text, text, timestamp with time zone) is
    'Has the runs of these RUNNING frames killed; their frames become p_state when the runs have ended.';
