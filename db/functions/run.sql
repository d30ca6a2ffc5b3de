-- run: ticks every p_every for p_for, each tick in a transaction of its own. What pg_cron calls each minute where it
-- knows no seconds; it ends in time for the next call, and at once where its session has grown past session_max_mb: the
-- next call has a fresh one. Call it outside a transaction block.
create or replace procedure maestro.run(every interval, for_ interval)
language plpgsql
as $$
declare
    v_end constant timestamptz := clock_timestamp() + for_;
    v_next timestamptz := clock_timestamp();
begin
    if every < interval '10 ms' then
        raise exception using errcode = 'QM001', message = format('run: every cannot be %s', every),
            hint = 'Allowed: 10 ms and more.';
    end if;
    while v_next < v_end loop
        perform public.maestro_tick();
        commit;
        -- History lags a busy farm if only the sweep writes it; here it delays nobody's tick.
        perform maestro.drain_history();
        commit;
        exit when maestro.session_is_full();
        -- A slow tick shortens the pause after it; ticks that were missed are not made up for.
        v_next := greatest(v_next + every, clock_timestamp());
        perform pg_sleep(extract(epoch from least(v_next, v_end) - clock_timestamp()));
    end loop;
end
$$;
comment on procedure maestro.run(interval, interval) is
    'Calls maestro_tick() every so often for so long, committing each; for pg_cron versions that know only minutes.';
