-- sweep: the tick's phase 2: puts right what a lost signal left behind. Each correction that a healthy farm would not
-- need is written to maestro.fault. Costs about a millisecond when there is nothing to do: the dearer parts take turns
-- (maestro.sweep_clock), each in bounded batches.
-- Called by run_phases. One part's error costs that part alone and is named in "errors".
--
-- every tick   finish_done_jobs       jobs whose frames are all done
-- every 1 s    drain_history          500 events of frame_history_queue into frame_history
-- every 2 s    sweep_hosts            silent hosts, their procs; drains that came to rest; restarted RQDs
-- every 5 s    sweep_procs            procs that no report confirms, procs and RUNNING frames without each other
-- every 60 s   match_procs            the same of procs and frames one by one
-- every 10 s   repair_states          counters of frames' states that lie, a slice of the layers
-- every 30 s   free_checkpoints       frames whose checkpoint nobody took away
-- every 30 s   recover_depends        depends whose end was never noticed
-- every 30 s   forget_state           warmth that has cooled, state of layers whose job is done
-- every 60 s   forget_history         rows older than history_hours
-- Result: {"swept": corrections, "hosts_down", "orphans", "depends_recovered", "jobs_finished", "errors"}.
-- Locks: the tick's lock, then as the parts.
create or replace function maestro.sweep(p_now timestamptz default now()) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_task record;
    v_due text [];
    v_counts jsonb := '{}';
    v_count bigint;
    v_errors jsonb := '[]';
    v_message text;
    v_state text;
begin
    perform maestro.take_tick_lock();
    with schedule (task, period) as (
        values
        ('sweep_hosts', interval '2 s'), ('sweep_procs', '5 s'), ('drain_history', '1 s'),
        ('recover_depends', '30 s'), ('forget_state', '30 s'), ('forget_history', '60 s'),
        ('match_procs', '60 s'), ('repair_states', '10 s'), ('free_checkpoints', '30 s')
    ),
    due as (
        insert into maestro.sweep_clock (task, last_at)
        select s.task, p_now
        from schedule as s
        left join maestro.sweep_clock as c on c.task = s.task
        -- A clock that went back must not silence a sweep.
        where c.task is null or c.last_at <= p_now - s.period or c.last_at > p_now
        on conflict (task) do update set last_at = excluded.last_at
        returning task
    )
    -- The dearer parts wait one period at first: a new database has nothing to put right, and much to fill.
    select array_agg(d.task) into v_due
    from due as d
    join schedule as s on s.task = d.task
    where s.period < interval '10 s' or exists (select from maestro.sweep_clock as c where c.task = d.task);

    for v_task in
        select t.task, t.argument, t.counter
        from (values
            (1, 'sweep_hosts', '$1', 'hosts_down'), (2, 'sweep_procs', '$1', 'orphans'),
            (3, 'recover_depends', '$1', 'depends_recovered'), (4, 'finish_done_jobs', '$1', 'jobs_finished'),
            (5, 'drain_history', '500', 'history'), (6, 'forget_history', '$1', 'forgotten'),
            (7, 'forget_state', '$1', 'cooled'), (8, 'repair_states', '$1', 'states'),
            (9, 'match_procs', 'null, $1', 'matched'), (10, 'free_checkpoints', '$1', 'checkpoints')
        ) as t (place, task, argument, counter)
        where t.task = 'finish_done_jobs' or t.task = any(v_due)
        order by t.place
    loop
        begin
            execute format('select maestro.%I(%s)', v_task.task, v_task.argument) into v_count using p_now;
            v_counts := v_counts || jsonb_build_object(v_task.counter, v_count);
        exception when others then
            get stacked diagnostics v_message = message_text, v_state = returned_sqlstate;
            if left(v_state, 2) in ('40', '53', '54', '55', '57', '58') then
                raise;
            end if;
            v_errors := v_errors || jsonb_build_object('what', v_task.task, 'message', v_message);
        end;
    end loop;

    return jsonb_build_object(
        'hosts_down', coalesce(v_counts -> 'hosts_down', '0'),
        'orphans', coalesce(v_counts -> 'orphans', '0'),
        'depends_recovered', coalesce(v_counts -> 'depends_recovered', '0'),
        'jobs_finished', coalesce(v_counts -> 'jobs_finished', '0'),
        'swept', (
            select coalesce(sum(e.value::bigint), 0)
            from jsonb_each_text(v_counts) as e where e.key not in ('history', 'forgotten', 'cooled')
        ),
        'errors', v_errors
    );
end
$$;
comment on function maestro.sweep(timestamp with time zone) is
    'Corrects what lost signals left behind, in bounded batches: {"swept", "hosts_down", "orphans", '
    '"depends_recovered", "jobs_finished", "errors"}. Takes the tick''s lock.';
