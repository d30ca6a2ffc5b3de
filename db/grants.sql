-- Who may do what. Replayed after the functions; everything not named here is refused.
-- Functions that change rows run as their owner (security definer), so callers need no right on any table.
revoke all on schema maestro from public;
revoke all on all tables in schema maestro from public;
revoke execute on all routines in schema maestro from public;
revoke execute on function public.maestro_tick(boolean, bigint) from public;

grant usage on schema maestro to maestro_admin, maestro_tick, maestro_launcher, maestro_reader;

-- maestro_tick: calls the tick, once or in a loop.
grant execute on function public.maestro_tick(boolean, bigint) to maestro_tick, maestro_admin;
grant execute on procedure maestro.run(interval, interval) to maestro_tick, maestro_admin;
grant execute on function maestro.drain_history(integer) to maestro_tick, maestro_admin;
grant execute on function maestro.session_is_full() to maestro_tick, maestro_admin;

-- maestro_launcher: its functions and nothing else.
grant execute on function
    maestro.register_launcher, maestro.heartbeat_launcher, maestro.leave_launcher,
    maestro.claim_launches, maestro.finish_launches, maestro.return_claims,
    maestro.claim_orders, maestro.finish_orders,
    maestro.claim_unconfirmed, maestro.finish_unconfirmed,
    maestro.report_startup, maestro.report_status, maestro.report_completion,
    maestro.launcher_metrics
to maestro_launcher;

-- maestro_reader: reads what the tick decided, and the state of the farm.
grant select on
    maestro.setting, maestro.tick, maestro.placement, maestro.waitlist, maestro.launch, maestro.launcher,
    maestro.host_order, maestro.host_drain, maestro.fault, maestro.reservation, maestro.host_ready_at,
    maestro.alloc_work, maestro.show_share, maestro.layer_rank, maestro.limit_policy
to maestro_reader, maestro_admin;
grant execute on function
    maestro.check_accounting, maestro.stat_line, maestro.launcher_metrics, maestro.cap_value
to maestro_reader, maestro_admin;

-- maestro_admin: settings, jobs and hosts.
grant update (value) on maestro.setting to maestro_admin;
grant select, insert, update, delete on maestro.host_dial, maestro.limit_policy to maestro_admin;
grant execute on function
    maestro.submit_job, maestro.kill_job, maestro.pause_job, maestro.resume_job, maestro.retry_frames,
    maestro.eat_frames, maestro.mark_done, maestro.set_job_priority, maestro.set_job_min_cores,
    maestro.set_job_max_cores, maestro.report_limit_usage, maestro.lock_host, maestro.unlock_host,
    maestro.drain_host, maestro.undrain_host
to maestro_admin;
