begin;
select plan(26);

-- status, signal, wish, nimby, retries, max, auto-eat, backoff, run seconds, timeout, log timeout, log silence
create function pg_temp.ends(
    p_status integer, p_signal integer default 0, p_wish text default null, p_nimby boolean default false,
    p_retries bigint default 0, p_max integer default 1, p_autoeat boolean default false,
    p_backoff boolean default false, p_run bigint default 60, p_timeout integer default 0,
    p_timeout_llu integer default 0, p_llu double precision default null
) returns text language sql as $$
    select maestro.completed_state($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
$$;

select is(pg_temp.ends(0), 'SUCCEEDED', '0 is success');
select is(pg_temp.ends(0, p_retries => 9, p_autoeat => true, p_run => 99999), 'SUCCEEDED', 'whatever else holds');
select is(pg_temp.ends(0, p_wish => 'WAITING'), 'WAITING', 'but a run killed for a retry runs again');
select is(pg_temp.ends(0, p_wish => 'EATEN'), 'SUCCEEDED', 'a success is not eaten');
select is(pg_temp.ends(1, 9, p_wish => 'EATEN'), 'EATEN', 'a killed run becomes what was wished');
select is(pg_temp.ends(1, 9, p_wish => 'WAITING', p_retries => 9), 'WAITING', 'retries do not matter to a wish');
select is(pg_temp.ends(1, 9, p_wish => 'STOPPED', p_autoeat => true), 'WAITING', 'a frame of a killed job waits');
select is(pg_temp.ends(0, p_wish => 'STOPPED'), 'SUCCEEDED', 'unless it came through');
select is(pg_temp.ends(286, p_retries => 9), 'WAITING', '286 waits at any number of retries');
select is(pg_temp.ends(1, 119, p_retries => 9), 'WAITING', 'so does signal 119');
select is(pg_temp.ends(1, 119, p_max => 0), 'DEAD', 'unless there are no retries');
select is(pg_temp.ends(256), 'WAITING', 'a failed launch waits');
select is(pg_temp.ends(1, 256, p_retries => 1), 'DEAD', 'below the retry cap');
select is(pg_temp.ends(1, 15, p_nimby => true, p_retries => 9), 'WAITING', 'nimby kills cost nothing');
select is(pg_temp.ends(1, 15, p_retries => 1), 'DEAD', 'other kills do');
select is(pg_temp.ends(1, p_autoeat => true), 'EATEN', 'auto-eat eats');
select is(pg_temp.ends(33, p_autoeat => true), 'EATEN', 'memory failures too');
select is(pg_temp.ends(330, p_backoff => true, p_retries => 9), 'WAITING', 'a limit''s status waits');
select is(pg_temp.ends(1, p_timeout => 10, p_run => 601), 'DEAD', 'beyond the timeout is dead');
select is(pg_temp.ends(1, p_timeout => 10, p_run => 600), 'WAITING', 'up to it is not');
select is(pg_temp.ends(1, p_timeout_llu => 5, p_llu => 241), 'DEAD', 'a log silent for long is dead');
select is(pg_temp.ends(1, p_timeout_llu => 5), 'WAITING', 'a log never heard of is not silent');
select is(pg_temp.ends(1, p_run => 43201), 'DEAD', 'twelve hours are not tried again');
select is(pg_temp.ends(1, p_retries => 1), 'DEAD', 'the retry cap');
select is(
    array[pg_temp.ends(33, p_retries => 9), pg_temp.ends(137, p_retries => 9), pg_temp.ends(1, 33, p_retries => 9)],
    '{WAITING,WAITING,WAITING}', 'holds for no memory failure'
);
select volatility_is(
    'maestro', 'completed_state',
    array['integer', 'integer', 'text', 'boolean', 'bigint', 'integer', 'boolean', 'boolean', 'bigint', 'integer',
        'integer', 'double precision'],
    'immutable', 'reads nothing but its arguments'
);

select * from finish();
rollback;
