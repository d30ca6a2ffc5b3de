-- match_procs: procs whose frame does not run, and RUNNING frames that have no proc, of jobs p_jobs.
-- Part of the sweep. Called by sweep_procs for jobs whose numbers differ, and once a minute without p_jobs: for all, in
-- slices of about 20,000 procs, one a call. At most 5,000 corrections of each kind a call.
-- A frame without a proc goes to WAITING with 301 once frame_verification_grace_seconds have passed since its start.
-- Locks as unbook; lock_frames. Result: corrections.
create or replace function maestro.match_procs(p_jobs text [], p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_slices constant integer := (
        select least(greatest(ceil(coalesce(sum(s.int_running_count), 0) / 20000.0), 1), 10) from job_stat as s
    );
    v_slice constant integer := mod(floor(extract(epoch from p_now) / 60)::bigint, v_slices);
    v_procs text [];
    v_frames text [];
    v_count bigint;
begin
    v_procs := array(
        select p.pk_proc
        from proc as p
        left join frame as f on f.pk_frame = p.pk_frame
        where f.str_state is distinct from 'RUNNING' and not p.b_local and case
            when p_jobs is null then mod(hashtext(p.pk_job)::bigint + 2147483648, v_slices) = v_slice
            else p.pk_job = any(p_jobs)
        end
        limit 5000
    );
    v_count := maestro.unbook_orphans(v_procs, 'its frame does not run', p_now);

    -- Every proc left holds a RUNNING frame: only where a layer has more of these is one without.
    v_frames := array(
        select f.pk_frame
        from layer_stat as s
        left join (select p.pk_layer, count(*) as procs from proc as p group by p.pk_layer) as c
            on c.pk_layer = s.pk_layer
        join frame as f on f.pk_layer = s.pk_layer
        where case
                when p_jobs is null then mod(hashtext(s.pk_job)::bigint + 2147483648, v_slices) = v_slice
                else s.pk_job = any(p_jobs)
            end
            and s.int_running_count > coalesce(c.procs, 0)
            and f.str_state = 'RUNNING'
            and f.ts_started < p_now
            - make_interval(secs => (select maestro.setting('frame_verification_grace_seconds'))::integer)
            and not exists (select from proc as p where p.pk_frame = f.pk_frame)
        limit 5000
    );
    if cardinality(v_frames) > 0 then
        perform maestro.lock_frames(v_frames);
        update frame as f set
            str_state = 'WAITING', int_exit_status = 301, str_checkpoint_state = 'DISABLED',
            ts_stopped = p_now, ts_updated = p_now, int_version = f.int_version + 1
        where f.pk_frame = any(v_frames) and f.str_state = 'RUNNING';
        insert into maestro.fault (at, kind, detail)
        select p_now, 'orphan frame', jsonb_build_object('pk_frame', f.pk_frame)
        from unnest(v_frames) as f (pk_frame);
        v_count := v_count + cardinality(v_frames);
    end if;
    return v_count;
end
$$;
comment on function maestro.match_procs(text [], timestamp with time zone) is
    'Frees procs whose frame does not run and RUNNING frames without a proc, of these jobs or (null) of a slice of all; '
    'returns the number of corrections.';
