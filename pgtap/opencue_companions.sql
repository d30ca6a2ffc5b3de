-- Rows that come, move and go with jobs, layers, folders and hosts.
begin;
select plan(25);

create function pg_temp.make_job(p_job text, p_state text default 'PENDING') returns void language sql as $$
    insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                     pk_facility, pk_dept)
    select p_job, f.pk_folder, f.pk_show, p_job, p_job, 'shot', 'user', p_state, c.pk_facility, f.pk_dept
      from folder f, facility c
     where f.b_default and f.pk_parent_folder is null and c.b_default
     order by f.str_name
     limit 1;
    insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
    select p_job || l, p_job, l, 'true', '1-9', 'RENDER' from unnest(array['-a', '-b']) l;
$$;
-- how many rows of public tables name the key, whatever the column
create function pg_temp.rows_of(p_tables text[], p_column text, p_key text) returns text language plpgsql as $$
declare
    v_table text;
    v_count bigint;
    v_all   text[] := '{}';
begin
    foreach v_table in array p_tables loop
        execute format('select count(*) from %I where %I = $1', v_table, p_column) into v_count using p_key;
        v_all := v_all || v_count::text;
    end loop;
    return array_to_string(v_all, ' ');
end
$$;

-- folders
insert into folder (pk_folder, pk_show, str_name, pk_dept)
select 'comp-root', s.pk_show, 'comp-root', d.pk_dept from show s, dept d where d.b_default limit 1;
insert into folder (pk_folder, pk_parent_folder, pk_show, str_name, pk_dept)
select n.key, n.parent, f.pk_show, n.key, f.pk_dept
  from folder f, (values ('comp-sub', 'comp-root'), ('comp-leaf', 'comp-sub')) n (key, parent)
 where f.pk_folder = 'comp-root';
select is(b_default, true, 'a folder without a parent is default') from folder where pk_folder = 'comp-root';
select is(b_default, false, 'a folder with a parent is not') from folder where pk_folder = 'comp-sub';
select results_eq(
    $$ select int_level from folder_level where pk_folder like 'comp-%' order by 1 $$,
    $$ values (0::bigint), (1::bigint), (2::bigint) $$, 'levels count from 0, also within one insert');
select is(pg_temp.rows_of(array['folder_resource'], 'pk_folder', 'comp-leaf'), '1', 'a folder gets its resource row');
delete from folder where pk_folder = 'comp-leaf';
select is(pg_temp.rows_of(array['folder_level', 'folder_resource'], 'pk_folder', 'comp-leaf'), '0 0',
    'a deleted folder takes its rows along');

-- jobs and layers
select pg_temp.make_job('comp-one'), pg_temp.make_job('comp-two');
select is(pg_temp.rows_of(array['job_stat', 'job_resource', 'job_usage', 'job_mem', 'job_history'],
    'pk_job', 'comp-one'), '1 1 1 1 1', 'a job gets its five rows');
select is(pg_temp.rows_of(array['layer_stat', 'layer_resource', 'layer_usage', 'layer_mem', 'layer_history'],
    'pk_layer', 'comp-one-a'), '1 1 1 1 1', 'and so does a layer');
select is(pk_job_stat || pk_job, 'comp-onecomp-one', 'companions reuse the key of their parent')
  from job_stat where pk_job = 'comp-one';
select is(dt_last_modified, current_date, 'history is dated') from layer_history where pk_layer = 'comp-one-a';

-- what a job holds goes where the job goes
update job_resource set int_cores = 300, int_gpus = 2 where pk_job = 'comp-one';
update folder_resource set int_cores = 1000, int_gpus = 5
 where pk_folder = (select pk_folder from job where pk_job = 'comp-one');
select pk_folder as home from job where pk_job = 'comp-one' \gset
update job set pk_folder = 'comp-sub' where pk_job = 'comp-one';
select is(int_cores || ' ' || int_gpus, '700 3', 'the old folder loses what the job holds')
  from folder_resource where pk_folder = :'home';
select is(int_cores || ' ' || int_gpus, '300 2', 'the new one gains it')
  from folder_resource where pk_folder = 'comp-sub';
insert into dept (pk_dept, str_name) values ('comp-dept', 'comp-dept');
insert into point (pk_point, pk_dept, pk_show)
select 'comp-point', 'comp-dept', pk_show from job where pk_job = 'comp-one';
update point p set int_cores = 1000, int_gpus = 5
  from job j where j.pk_job = 'comp-one' and p.pk_show = j.pk_show and p.pk_dept = j.pk_dept;
update job set pk_dept = 'comp-dept' where pk_job = 'comp-one';
select is(string_agg(int_cores || ' ' || int_gpus, ', ' order by int_cores), '300 2, 700 3',
    'a department change moves it between points')
  from point where int_cores > 0;

-- the end of a job
update job_usage set int_core_time_success = 50, int_gpu_time_success = 6 where pk_job = 'comp-one';
update job_stat set int_succeeded_count = 8, int_eaten_count = 1 where pk_job = 'comp-one';
update job_mem set int_max_rss = 4096 where pk_job = 'comp-one';
update layer_usage set int_core_time_success = 40 where pk_layer = 'comp-one-a';
update layer_stat set int_total_count = 9, int_succeeded_count = 8 where pk_layer = 'comp-one-a';
insert into host (pk_host, pk_alloc, str_name, str_lock_state)
select 'comp-host', pk_alloc, 'comp-host', 'OPEN' from alloc where b_default limit 1;
insert into job_local (pk_job_local, pk_job, pk_host, str_source, int_max_cores)
values ('comp-local', 'comp-one', 'comp-host', 'ws', 100);
update job set str_state = 'FINISHED', ts_stopped = to_timestamp(5000), str_visible_name = null
 where pk_job = 'comp-one';
select results_eq(
    $$ select int_core_time_success, int_gpu_time_success, int_succeeded_count, int_eaten_count, int_max_rss,
              int_ts_stopped, b_archived from job_history where pk_job = 'comp-one' $$,
    $$ values (50::bigint, 6::bigint, 8::bigint, 1::bigint, 4096::bigint, 5000, false) $$,
    'a finished job leaves its totals in job_history');
select results_eq(
    $$ select int_core_time_success, int_frame_count, int_succeeded_count
         from layer_history where pk_layer = 'comp-one-a' $$,
    $$ values (40::bigint, 9::bigint, 8::bigint) $$, 'and those of its layers in layer_history');
select is_empty($$ select from job_local where pk_job = 'comp-one' $$, 'its local booking is gone');

-- deletion
insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
select 'comp-frame-' || i, 'comp-one-a', 'comp-one', i || '-a', 'SUCCEEDED', i, 1 from generate_series(1, 3) i;
insert into depend (pk_depend, pk_job_depend_on, pk_job_depend_er, str_type, str_target, str_signature)
values ('comp-dep-1', 'comp-one', 'comp-two', 'JOB_ON_JOB', 'EXTERNAL', 'comp-dep-1'),
       ('comp-dep-2', 'comp-two', 'comp-one', 'JOB_ON_JOB', 'EXTERNAL', 'comp-dep-2');
insert into job_env (pk_job_env, pk_job, str_key, str_value) values ('comp-env', 'comp-one', 'K', 'v');
insert into layer_env (pk_layer_env, pk_layer, pk_job, str_key, str_value)
values ('comp-lenv', 'comp-one-a', 'comp-one', 'K', 'v');
insert into layer_output (pk_layer_output, pk_layer, pk_job, str_filespec)
values ('comp-out', 'comp-one-a', 'comp-one', '/tmp/x.#.png');
insert into job_post (pk_job_post, pk_job, pk_post_job) values ('comp-post', 'comp-one', 'comp-two');
insert into comments (pk_comment, pk_job, str_user, str_subject, str_message)
values ('comp-note', 'comp-one', 'user', 'subject', 'message');
insert into limit_record (pk_limit_record, str_name, int_max_value) values ('comp-limit', 'comp-limit', 1);
insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values ('comp-ll', 'comp-one-a', 'comp-limit');
select lives_ok($$ delete from job where pk_job = 'comp-one' $$, 'a finished job can be deleted');
select is(pg_temp.rows_of(array['frame', 'layer', 'layer_stat', 'layer_resource', 'layer_usage', 'layer_mem',
    'layer_env', 'layer_output', 'job_env', 'job_stat', 'job_resource', 'job_usage', 'job_mem', 'job_post',
    'comments'], 'pk_job', 'comp-one'), '0 0 0 0 0 0 0 0 0 0 0 0 0 0 0', 'its rows go with it');
select is_empty($$ select from depend where pk_depend like 'comp-dep-%' $$, 'depends on it and of it go too');
select is_empty($$ select from layer_limit where pk_layer = 'comp-one-a' $$, 'and so do the limits of its layers');
select is(b_archived, true, 'its history stays, archived') from job_history where pk_job = 'comp-one';
select is(bool_and(b_archived), true, 'and so does that of its layers') from layer_history where pk_job = 'comp-one';

insert into host_stat (pk_host_stat, pk_host) values ('comp-host', 'comp-host');
insert into host_tag (pk_host_tag, pk_host, str_tag) values ('comp-tag', 'comp-host', 'general');
insert into proc (pk_proc, pk_host, int_cores_reserved, int_mem_reserved) values ('comp-proc', 'comp-host', 100, 1);
select throws_ok($$ delete from host where pk_host = 'comp-host' $$, '23503', null,
    'a host with a proc cannot be deleted');
delete from proc where pk_proc = 'comp-proc';
delete from host where pk_host = 'comp-host';
select is(pg_temp.rows_of(array['host_stat', 'host_tag'], 'pk_host', 'comp-host'), '0 0',
    'a deleted host takes its rows along');

-- without history
insert into config (pk_config, str_key) values ('comp-off', 'DISABLE_HISTORY');
select pg_temp.make_job('comp-three');
select is(pg_temp.rows_of(array['job_stat', 'layer_stat', 'job_history', 'layer_history'], 'pk_job', 'comp-three'),
    '1 2 0 0', 'DISABLE_HISTORY: a job and its layers get no history rows');
select lives_ok($$ update job set str_state = 'FINISHED' where pk_job = 'comp-three' $$,
    'and can finish without them');

select * from finish();
rollback;
