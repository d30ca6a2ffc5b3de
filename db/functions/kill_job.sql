-- kill_job: a job ends now. An operator's verb.
-- It is FINISHED at once: nothing of it is booked any more, its name is free, its post jobs start, depends on the job
-- (not on its layers or frames) are satisfied. Its runs are killed; each releases its proc when it has ended, its frame
-- goes to WAITING with 500, or stays SUCCEEDED if it came through.
-- Result: {"pk_job", "killed": runs being killed}. Errors: QM002 no such job, QM003 it is finished already.
-- Locks: the tick's lock, then launch, proc, and as unbook, job, depend and frames that waited for the job.
create or replace function maestro.kill_job(
    p_job text, p_reason text default 'killed by an operator', p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_job text;
    v_ended text [];
    v_killed integer;
begin
    perform maestro.take_tick_lock();
    v_job := maestro.find_job(p_job);
    v_ended := maestro.finish_jobs(array[v_job], p_now);
    if cardinality(v_ended) = 0 then
        raise exception using
            errcode = 'QM003',
            message = format(
                'job %s cannot be killed: it is %s', p_job, (select j.str_state from job as j where j.pk_job = v_job)
            ),
            hint = 'Only a PENDING job can be killed.';
    end if;
    v_killed := maestro.take_back(
        array(select p.pk_proc from proc as p where p.pk_job = v_job order by p.pk_proc),
        left(coalesce(p_reason, 'killed by an operator'), 500), p_now
    );
    perform maestro.satisfy_depends(null, null, v_ended, p_now);
    return jsonb_build_object('pk_job', v_job, 'killed', v_killed);
end
$$;
comment on function maestro.kill_job(text, text, timestamp with time zone) is
    'Ends a job (name or id) and has its runs killed: {"pk_job", "killed"}. QM002 no such job, QM003 not PENDING.';
