-- pause_job: nothing of the job is booked until it is resumed; what runs goes on. An operator's verb.
-- Result: pk_job. Errors: QM002. Locks: the job row.
create or replace function maestro.pause_job(p_job text) returns text
language sql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
    update job set b_paused = true, ts_updated = now() where pk_job = maestro.find_job(p_job) returning pk_job;
$$;
comment on function maestro.pause_job(text) is 'Pauses a job (name or id); returns its pk_job. QM002: no such job.';
