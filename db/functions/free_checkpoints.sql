-- free_checkpoints: frames whose checkpoint nobody has taken away for five minutes run again.
-- Part of the sweep. A frame that ends to run again while its checkpoint is being copied is CHECKPOINT until the
-- copying is reported; if that report never comes it would wait for good. At most 1,000 a call, each a row of
-- maestro.fault.
-- Locks: lock_frames. Result: frames freed.
create or replace function maestro.free_checkpoints(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_frames text [];
begin
    v_frames := array(
        select f.pk_frame
        from job as j
        join layer_stat as s on s.pk_job = j.pk_job and s.int_checkpoint_count > 0
        join frame as f on f.pk_layer = s.pk_layer and f.str_state = 'CHECKPOINT'
        where j.str_state = 'PENDING' and f.ts_updated < p_now - interval '5 min'
        limit 1000
    );
    if cardinality(v_frames) > 0 then
        perform maestro.lock_frames(v_frames);
        update frame as f set
            str_state = 'WAITING', str_checkpoint_state = 'DISABLED', ts_updated = p_now,
            int_version = f.int_version + 1
        where f.pk_frame = any(v_frames) and f.str_state = 'CHECKPOINT';
        insert into maestro.fault (at, kind, detail)
        select p_now, 'checkpoint left open', jsonb_build_object('pk_frame', f.pk_frame)
        from unnest(v_frames) as f (pk_frame);
    end if;
    return cardinality(v_frames);
end
$$;
comment on function maestro.free_checkpoints(timestamp with time zone) is
    'Puts frames back to WAITING that are CHECKPOINT for five minutes; returns how many.';
