-- layer_stat and job_stat follow the states of frames, summed over a statement.
begin;
select plan(16);

create function pg_temp.make_job(p_job text) returns void language sql as $$
    insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                     pk_facility, pk_dept)
    select p_job, f.pk_folder, f.pk_show, p_job, p_job, 'shot', 'user', 'PENDING', c.pk_facility, f.pk_dept
      from folder f, facility c
     where f.b_default and c.b_default
     limit 1;
    insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
    select p_job || l, p_job, l, 'true', '1-100', 'RENDER' from unnest(array['-a', '-b']) l;
$$;
create function pg_temp.make_frames(p_job text, p_layer text, p_state text, p_from int, p_to int) returns void
language sql as $$
    insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    select p_job || p_layer || '-' || i, p_job || p_layer, p_job, i || p_layer, p_state, i, 1
      from generate_series(p_from, p_to) i
$$;
-- counters of a row, zeros left out
create function pg_temp.counters(p_row jsonb) returns text language sql as $$
    select coalesce(string_agg(substring(key from 'int_(.*)_count') || '=' || value, ' ' order by key), '')
      from jsonb_each_text(p_row)
     where key like 'int\_%\_count' and key <> 'int_total_count' and value <> '0'
$$;
create function pg_temp.layer(p_layer text) returns text language sql as $$
    select pg_temp.counters(to_jsonb(s)) from layer_stat s where pk_layer = p_layer
$$;
create function pg_temp.job(p_job text) returns text language sql as $$
    select pg_temp.counters(to_jsonb(s)) from job_stat s where pk_job = p_job
$$;
-- what the counters should be
create function pg_temp.wrong() returns setof text language sql as $$
    select s.pk_layer || ': ' || pg_temp.counters(to_jsonb(s))
      from layer_stat s
     where s.pk_job in ('one', 'two')
       and pg_temp.counters(to_jsonb(s)) <> coalesce((
            select string_agg(lower(str_state) || '=' || n, ' ' order by str_state)
              from (select str_state, count(*) n from frame
                     where pk_layer = s.pk_layer and str_state <> 'SETUP' group by str_state) f), '')
    union all
    select s.pk_job || ': ' || pg_temp.counters(to_jsonb(s))
      from job_stat s
     where s.pk_job in ('one', 'two')
       and pg_temp.counters(to_jsonb(s)) <> coalesce((
            select string_agg(lower(str_state) || '=' || n, ' ' order by str_state)
              from (select str_state, count(*) n from frame
                     where pk_job = s.pk_job and str_state <> 'SETUP' group by str_state) f), '')
$$;

select pg_temp.make_job('one'), pg_temp.make_job('two');
select pg_temp.make_frames('one', '-a', 'SETUP', 1, 100), pg_temp.make_frames('one', '-b', 'SETUP', 1, 50),
       pg_temp.make_frames('two', '-a', 'SETUP', 1, 10);
select is(pg_temp.layer('one-a'), '', 'inserting frames counts nothing');

update frame set str_state = 'WAITING' where pk_job in ('one', 'two');
select is(pg_temp.layer('one-a'), '', 'leaving SETUP counts nothing: activation assigns the counters');
update layer_stat s set int_waiting_count = (select count(*) from frame where pk_layer = s.pk_layer)
 where pk_job in ('one', 'two');
update job_stat s set int_waiting_count = (select count(*) from frame where pk_job = s.pk_job)
 where pk_job in ('one', 'two');

update frame set str_state = 'RUNNING', ts_started = '2026-01-01 00:00:00+00', ts_stopped = null
 where pk_frame = 'one-a-1';
select is(pg_temp.layer('one-a'), 'running=1 waiting=99', 'one start moves one frame in layer_stat');
select is(pg_temp.job('one'), 'running=1 waiting=149', 'and in job_stat');
select is(ts_started, '2026-01-01 00:00:00+00', 'the first start of a layer is stamped')
  from layer_stat where pk_layer = 'one-a';

update frame set str_state = 'RUNNING', ts_started = '2026-01-02 00:00:00+00', ts_stopped = null
 where pk_job in ('one', 'two') and int_number between 2 and 40;
select is(ts_started, '2026-01-01 00:00:00+00', 'later starts leave the stamp')
  from layer_stat where pk_layer = 'one-a';
select is_empty('select pg_temp.wrong()', 'one statement that starts frames of three layers and two jobs counts right');

-- frames in RUNNING and WAITING go to five states in one statement
update frame
   set str_state = case int_number % 5 when 0 then 'SUCCEEDED' when 1 then 'DEAD' when 2 then 'EATEN'
                                       when 3 then 'RUNNING' else 'WAITING' end,
       ts_stopped = '2026-01-03 00:00:00+00'::timestamptz + int_number * interval '1 s'
 where pk_job in ('one', 'two');
select is_empty('select pg_temp.wrong()', 'one statement that moves frames between many states counts right');
select is(ts_stopped, '2026-01-03 00:00:40+00', 'the last stop of a layer is the latest of the statement')
  from layer_stat where pk_layer = 'one-a';

update frame set int_depend_count = 1 where pk_job = 'one' and str_state = 'SUCCEEDED';
select is_empty('select pg_temp.wrong()', 'states that a row trigger rewrites (to DEPEND) are counted as stored');
update frame set int_depend_count = 0 where pk_job = 'one';
select is_empty('select pg_temp.wrong()', 'and so is their release');
update frame set str_checkpoint_state = 'ENABLED', str_state = 'WAITING' where pk_job = 'two' and str_state = 'RUNNING';
select is_empty('select pg_temp.wrong()', 'CHECKPOINT has its counter');

select pg_temp.layer('one-a') as before \gset
update frame set int_mem_used = int_mem_used + 1, ts_updated = now() where pk_job = 'one';
select is(pg_temp.layer('one-a'), :'before', 'an update that changes no state changes no counter');
update frame set str_state = 'WAITING' where pk_frame = 'nobody';
select is(pg_temp.layer('one-a'), :'before', 'nor does one that finds no row');

-- a plan made for one row must serve thousands
select pg_temp.make_frames('two', '-b', 'WAITING', 1, 5000);
update layer_stat set int_waiting_count = 5000 where pk_layer = 'two-b';
update job_stat set int_waiting_count = int_waiting_count + 5000 where pk_job = 'two';
update frame set str_state = 'RUNNING' where pk_layer = 'two-b';
select is_empty('select pg_temp.wrong()', 'a batch of 5,000 after single updates counts right');

select throws_ok($$ update frame set str_state = 'SETUP' where pk_frame = 'one-a-1' $$, 'P0001',
    'no counter for frames in state SETUP', 'a frame cannot go back to SETUP');

select * from finish();
rollback;
