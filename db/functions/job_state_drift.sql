-- job_state_drift: jobs (of p_jobs; null: all that are not finished) whose counters are not the sums of their layers',
-- with those sums. Called by repair_states. Locks nothing.
create or replace function maestro.job_state_drift(p_jobs text [])
returns table (
    pk_job text, waiting bigint, running bigint, dead bigint, depend bigint, eaten bigint, succeeded bigint,
    checkpoint bigint
)
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select c.*
    from (
        select
            s.pk_job::text as pk_job, sum(s.int_waiting_count) as waiting, sum(s.int_running_count) as running,
            sum(s.int_dead_count) as dead, sum(s.int_depend_count) as depend, sum(s.int_eaten_count) as eaten,
            sum(s.int_succeeded_count) as succeeded, sum(s.int_checkpoint_count) as checkpoint
        from job as j join layer_stat as s on s.pk_job = j.pk_job
        where j.str_state not in ('FINISHED', 'STARTUP') and (p_jobs is null or j.pk_job = any(p_jobs))
        group by s.pk_job
    ) as c
    join job_stat as t on t.pk_job = c.pk_job
    where (c.waiting, c.running, c.dead, c.depend, c.eaten, c.succeeded, c.checkpoint)
        is distinct from (
            t.int_waiting_count, t.int_running_count, t.int_dead_count, t.int_depend_count, t.int_eaten_count,
            t.int_succeeded_count, t.int_checkpoint_count
        );
$$;
comment on function maestro.job_state_drift(text []) is
    'Jobs whose job_stat is not the sum of their layer_stat rows, and the sums. Locks nothing.';
