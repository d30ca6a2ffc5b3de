-- sweep_procs: procs that no report confirms, procs whose frame does not run, RUNNING frames that have no proc.
-- Part of the sweep. At most 5,000 of each a call.
--
-- Not confirmed for orphan_seconds: unbooked with 301, all together, so that one host's cannot keep another's waiting.
-- Not judged while nobody could hear reports, nor with a completion in the inbox.
-- Procs and RUNNING frames are compared by number, job by job, and looked at one by one only where they differ.
-- A frame without a proc goes to WAITING with 301 once frame_verification_grace_seconds have passed since its start.
-- Locks as unbook; lock_frames. Result: corrections.
create or replace function maestro.sweep_procs(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_silent constant timestamptz := p_now - make_interval(secs => maestro.setting('orphan_seconds')::integer);
    v_procs text [];
    v_jobs text [];
    v_frames text [];
    v_count bigint := 0;
begin
    if maestro.someone_listens(p_now) then
        v_procs := array(
            select p.pk_proc
            from proc as p
            where p.ts_ping < v_silent
            order by p.ts_ping
            limit 5000
        );
        if cardinality(v_procs) > 0 then
            v_procs := array(
                select p from unnest(v_procs) as p
                where not exists (select from maestro.completion as c where c.pk_proc = p)
            );
            v_count := maestro.unbook_orphans(v_procs, 'no report confirmed it', p_now);
        end if;
    end if;

    v_jobs := array(
        select coalesce(s.pk_job, p.pk_job)
        from (
            select s.pk_job, s.int_running_count as frames
            from job as j join job_stat as s on s.pk_job = j.pk_job
            where j.str_state <> 'FINISHED' and s.int_running_count > 0
        ) as s
        full join (select pk_job, count(*) as procs from proc group by pk_job) as p on p.pk_job = s.pk_job
        where s.frames is distinct from p.procs
    );
    if cardinality(v_jobs) = 0 then
        return v_count;
    end if;

    v_procs := array(
        select p.pk_proc
        from proc as p
        left join frame as f on f.pk_frame = p.pk_frame
        where p.pk_job = any(v_jobs) and f.str_state is distinct from 'RUNNING' and not p.b_local
        limit 5000
    );
    v_count := v_count + maestro.unbook_orphans(v_procs, 'its frame does not run', p_now);

    v_frames := array(
        select f.pk_frame
        from layer as l
        join layer_stat as s on s.pk_layer = l.pk_layer and s.int_running_count > 0
        join frame as f on f.pk_layer = l.pk_layer
        where l.pk_job = any(v_jobs) and f.str_state = 'RUNNING'
            and f.ts_started < p_now
            - make_interval(secs => maestro.setting('frame_verification_grace_seconds')::integer)
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
comment on function maestro.sweep_procs(timestamp with time zone) is
    'Frees procs that no report confirms and those whose frame does not run, and RUNNING frames without a proc; '
    'returns the number of corrections.';
