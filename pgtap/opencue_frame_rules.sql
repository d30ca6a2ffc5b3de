-- What happens to a frame before it is stored: eligibility, checkpoints, depends, eaten frames.
begin;
select plan(20);

insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                 pk_facility, pk_dept)
select 'rule-job', f.pk_folder, f.pk_show, 'rule-job', 'rule-job', 'shot', 'user', 'PENDING', c.pk_facility, f.pk_dept
  from folder f, facility c
 where f.b_default and c.b_default
 limit 1;
insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
values ('rule-layer', 'rule-job', 'layer', 'true', '1-9', 'RENDER');

create function pg_temp.make(p_frame text, p_state text, p_depends int default 0) returns void language sql as $$
    insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order, int_depend_count)
    values (p_frame, 'rule-layer', 'rule-job', p_frame, p_state, 1, 1, p_depends)
$$;
create function pg_temp.state(p_frame text) returns text language sql as $$
    select str_state || ' v' || int_version from frame where pk_frame = p_frame
$$;

-- eligibility
select pg_temp.make('waiting', 'WAITING');
select is(ts_eligible, now(), 'a frame inserted as WAITING is eligible from now') from frame where pk_frame = 'waiting';
select pg_temp.make('setup', 'SETUP');
select is(ts_eligible, null, 'a frame inserted as SETUP is not eligible yet') from frame where pk_frame = 'setup';
update frame set str_state = 'WAITING' where pk_frame = 'setup';
select is(ts_eligible, now(), 'SETUP to WAITING stamps eligibility') from frame where pk_frame = 'setup';
select is(pg_temp.state('setup'), 'WAITING v0', 'SETUP to WAITING does not bump the version');
insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order, ts_eligible)
values ('stamped', 'rule-layer', 'rule-job', 'stamped', 'WAITING', 1, 1, '2020-01-01 00:00:00+00');
select is(ts_eligible, '2020-01-01 00:00:00+00', 'a given stamp is kept on insert')
  from frame where pk_frame = 'stamped';
update frame set str_state = 'RUNNING', ts_eligible = '2020-01-01 00:00:00+00' where pk_frame = 'waiting';
select is(ts_eligible, '2020-01-01 00:00:00+00', 'a start leaves the stamp alone')
  from frame where pk_frame = 'waiting';

-- checkpoints
update frame set str_checkpoint_state = 'ENABLED' where pk_frame = 'waiting';
update frame set str_state = 'WAITING' where pk_frame = 'waiting';
select is(pg_temp.state('waiting'), 'CHECKPOINT v0', 'RUNNING to WAITING while checkpointing becomes CHECKPOINT');
update frame set str_state = 'WAITING', str_checkpoint_state = 'COMPLETE' where pk_frame = 'waiting';
select is(pg_temp.state('waiting'), 'WAITING v0', 'CHECKPOINT to WAITING passes');
select pg_temp.make('copying', 'RUNNING');
update frame set str_state = 'WAITING', str_checkpoint_state = 'COPYING', int_depend_count = 1
 where pk_frame = 'copying';
select is(pg_temp.state('copying'), 'DEPEND v1', 'a checkpointed frame with a depend goes on to DEPEND');

-- depends
select pg_temp.make('held', 'SETUP', 2);
update frame set str_state = 'WAITING' where pk_frame = 'held';
select is(pg_temp.state('held'), 'DEPEND v1', 'SETUP to WAITING with depends becomes DEPEND');
select is(ts_eligible, now(), 'and is stamped as eligible all the same') from frame where pk_frame = 'held';
update frame set int_depend_count = 1, ts_eligible = null where pk_frame = 'held';
select is(pg_temp.state('held'), 'DEPEND v1', 'a depend less, one left: still DEPEND');
update frame set int_depend_count = 0 where pk_frame = 'held';
select is(pg_temp.state('held'), 'WAITING v2', 'the last depend gone: WAITING, version bumped');
select is(ts_eligible, now(), 'and eligible from now') from frame where pk_frame = 'held';
select pg_temp.make('done', 'SUCCEEDED');
update frame set int_depend_count = 1 where pk_frame = 'done';
select is(pg_temp.state('done'), 'DEPEND v1', 'a depend raised on a SUCCEEDED frame makes it DEPEND');
select pg_temp.make('busy', 'RUNNING');
update frame set int_depend_count = 1 where pk_frame = 'busy';
select is(pg_temp.state('busy'), 'RUNNING v0', 'a depend raised on a RUNNING frame waits for its end');
update frame set str_state = 'DEAD' where pk_frame = 'busy';
select is(pg_temp.state('busy'), 'DEPEND v1', 'which then makes it DEPEND');

-- eaten
select pg_temp.make('good', 'SUCCEEDED');
update frame set str_state = 'EATEN' where pk_frame = 'good';
select is(pg_temp.state('good'), 'SUCCEEDED v0', 'a SUCCEEDED frame cannot be eaten');
select pg_temp.make('bad', 'DEAD');
update frame set str_state = 'EATEN' where pk_frame = 'bad';
select is(pg_temp.state('bad'), 'EATEN v0', 'a DEAD frame can');

-- no trigger function runs for a plain start: the tests of the row triggers are in WHEN
select is_empty($$
    select tgname from pg_trigger
     where tgrelid = 'public.frame'::regclass and not tgisinternal and tgtype & 1 = 1 and tgqual is null
$$, 'every row trigger on frame has its test in WHEN');

select * from finish();
rollback;
