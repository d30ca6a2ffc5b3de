-- submit_job: takes a job spec in its JSON form (docs/job-spec.md) and stores its jobs, ready to run.
-- Called by `maestro submit`, by submit.api and by anyone who may submit; one transaction, all or nothing.
--
-- Order: the spec is read, what it needs of the farm is looked up, rows are made (package jobspec), stored, and depends
-- on other jobs that were satisfied meanwhile are closed. Whatever the size of the job, the number of statements is
-- fixed. Frames are inserted in their first state, WAITING or DEPEND, so no trigger counts them one by one.
-- Locks: none on rows that others write, but for show_stats at the very end; with depends on jobs outside of the spec
-- the tick's lock too, after the rows are stored.
-- Result: {"jobs": [{"pk_job", "name", "frames", "layers"}], "warnings": [text]}; a job's Post layers follow it as a
-- job of their own.
-- Errors: QM001 with the place in the message, what would be right in the hint, the JSON path in the detail.
create or replace function maestro.submit_job(p_spec jsonb) returns jsonb
language plpgsql volatile
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_answer jsonb := maestro.build_submission(p_spec);
begin
    if v_answer ? 'refused' then
        raise exception using
            errcode = 'QM001',
            message = v_answer #>> '{refused,message}',
            hint = v_answer #>> '{refused,hint}',
            detail = v_answer #>> '{refused,path}';
    end if;
    return v_answer;
end
$$;
comment on function maestro.submit_job(jsonb) is
    'Submits a job spec in its JSON form. Returns {"jobs": [{pk_job, name, frames, layers}], "warnings": [text]}. '
    'A bad spec is refused whole with QM001: message with the place, hint with what would be right, detail with the '
    'JSON path. Locks show_stats at its end, and the tick if the spec waits for jobs outside of it.';
