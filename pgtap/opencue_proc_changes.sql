-- A proc whose memory grows debits its host; one that changes layer takes its cores along.
begin;
select plan(8);

insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                 pk_facility, pk_dept)
select 'proc-job', f.pk_folder, f.pk_show, 'proc-job', 'proc-job', 'shot', 'user', 'PENDING', c.pk_facility, f.pk_dept
  from folder f, facility c
 where f.b_default and c.b_default
 limit 1;
insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
select 'proc-' || l, 'proc-job', l, 'true', '1-9', 'RENDER' from unnest(array['a', 'b']) l;
insert into host (pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
select h, pk_alloc, h, 'OPEN', 800, 400, 1000, 800 from alloc, unnest(array['proc-h1', 'proc-h2']) h where b_default;
insert into proc (pk_proc, pk_host, pk_job, pk_layer, int_cores_reserved, int_mem_reserved, int_gpus_reserved)
select h || '-' || i, h, 'proc-job', 'proc-a', 200, 100, 1
  from unnest(array['proc-h1', 'proc-h2']) h, generate_series(1, 2) i;
update layer_resource set int_cores = 800, int_gpus = 4 where pk_layer = 'proc-a';

create function pg_temp.idle() returns text language sql as $$
    select string_agg(int_mem_idle::text, ' ' order by pk_host) from host where pk_host like 'proc-h%'
$$;

update proc set int_mem_used = 50, ts_ping = now() where pk_job = 'proc-job';
select is(pg_temp.idle(), '800 800', 'usage changes no idle memory');
update proc set int_mem_reserved = 150 where pk_proc = 'proc-h1-1';
select is(pg_temp.idle(), '750 800', 'memory growth debits the host');
update proc set int_mem_reserved = 200 where pk_job = 'proc-job';
select is(pg_temp.idle(), '600 600', 'growth of many procs is summed a host');
update proc set int_mem_reserved = 50 where pk_proc = 'proc-h2-1';
select is(pg_temp.idle(), '600 750', 'a decrease gives memory back');
select throws_ok($$ update proc set int_mem_reserved = 900 where pk_proc = 'proc-h1-1' $$, 'P0001',
    'unable to allocate additional memory', 'growth beyond the idle memory of the host is refused');

update proc set pk_layer = 'proc-b' where pk_proc in ('proc-h1-1', 'proc-h2-2');
select results_eq(
    $$ select pk_layer::text, int_cores, int_gpus from layer_resource where pk_job = 'proc-job' order by 1 $$,
    $$ values ('proc-a', 400::bigint, 2), ('proc-b', 400::bigint, 2) $$,
    'procs that change layer take cores and gpus along');
update proc set int_cores_reserved = 100, int_gpus_reserved = 0, pk_layer = 'proc-a' where pk_proc = 'proc-h1-1';
select results_eq(
    $$ select pk_layer::text, int_cores, int_gpus from layer_resource where pk_job = 'proc-job' order by 1 $$,
    $$ values ('proc-a', 500::bigint, 2), ('proc-b', 200::bigint, 1) $$,
    'the old layer loses the old amounts, the new one gains the new');
update proc set pk_frame = null where pk_job = 'proc-job';
select is(pg_temp.idle(), '600 750', 'an unassigned frame changes no idle memory');

select * from finish();
rollback;
