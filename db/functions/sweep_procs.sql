-- sweep_procs: procs that no report confirms, procs whose frame does not run, RUNNING frames that have no proc.
-- Part of the sweep. At most 5,000 of each a call.
--
-- Not confirmed for orphan_seconds: unbooked with 301, all together, so that one host's cannot keep another's waiting.
-- Not judged while nobody could hear reports, nor with a completion in the inbox.
-- Procs and RUNNING frames are compared by number, job by job, and looked at one by one where they differ
-- (match_procs); a proc too many and one too few hide each other from that until all are looked at.
-- Locks as match_procs. Result: corrections.
create or replace function maestro.sweep_procs(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_silent constant timestamptz := p_now - make_interval(secs => maestro.setting('orphan_seconds')::integer);
    v_procs text [];
    v_jobs text [];
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
    if cardinality(v_jobs) > 0 then
        v_count := v_count + maestro.match_procs(v_jobs, p_now);
    end if;
    return v_count;
end
$$;
comment on function maestro.sweep_procs(timestamp with time zone) is
    'Frees procs that no report confirms and those whose frame does not run, and RUNNING frames without a proc; '
    'returns the number of corrections.';
