-- What the tables refuse: idle below zero, holdings over their cap, empty bookings.
begin;
select plan(26);

insert into host (pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle,
                  int_gpus, int_gpus_idle, int_gpu_mem, int_gpu_mem_idle)
select 'guard-host', pk_alloc, 'guard-host', 'OPEN', 800, 800, 1000, 1000, 2, 2, 500, 500
  from alloc where b_default limit 1;

-- host
select throws_ok($$ update host set int_cores_idle = -1 where pk_host = 'guard-host' $$, 'P0001',
    'unable to allocate additional core units', 'idle cores below zero are refused');
select throws_ok($$ update host set int_mem_idle = -1 where pk_host = 'guard-host' $$, 'P0001',
    'unable to allocate additional memory', 'idle memory below zero is refused');
select throws_ok($$ update host set int_gpus_idle = -1 where pk_host = 'guard-host' $$, 'P0001',
    'unable to allocate additional GPU units', 'idle gpus below zero are refused');
select throws_ok($$ update host set int_gpu_mem_idle = -1 where pk_host = 'guard-host' $$, 'P0001',
    'unable to allocate additional GPU memory', 'idle gpu memory below zero is refused');
select lives_ok($$ update host set int_cores_idle = 0, int_mem_idle = 0, int_gpus_idle = 0, int_gpu_mem_idle = 0
                    where pk_host = 'guard-host' $$, 'all of a host may be taken');

-- host_local and job_local
insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                 pk_facility, pk_dept)
select 'guard-job', f.pk_folder, f.pk_show, 'guard-job', 'guard-job', 'shot', 'user', 'PENDING', c.pk_facility,
       f.pk_dept
  from folder f, facility c
 where f.b_default and c.b_default
 limit 1;
insert into host_local (pk_host_local, pk_job, pk_host, str_type, int_cores_max, int_cores_idle)
values ('guard-local', 'guard-job', 'guard-host', 'JOB', 200, 200);
select throws_ok($$ update host_local set int_cores_idle = -100 where pk_host_local = 'guard-local' $$, 'P0001',
    'unable to allocate additional core units', 'a workstation lends no more than it offers');
update host_local set int_cores_idle = 100 where pk_host_local = 'guard-local';
select is(float_tier, 0.50, 'tier of a workstation: cores in use over its maximum')
  from host_local where pk_host_local = 'guard-local';
select lives_ok($$ update host_local set int_cores_max = 0, int_cores_idle = -100
                    where pk_host_local = 'guard-local' $$,
    'a change of its maximum is not checked');
insert into job_local (pk_job_local, pk_job, pk_host, str_source, int_max_cores)
values ('guard-job-local', 'guard-job', 'guard-host', 'ws', 200);
select throws_ok($$ update job_local set int_cores = 300 where pk_job_local = 'guard-job-local' $$, 'P0001',
    'job has exceeded max local cores', 'local cores stay under their maximum');

-- subscription
update subscription set int_size = 400, int_burst = 500;
select throws_ok($$ update subscription set int_cores = 501 $$, 'P0001',
    'subscription has exceeded burst size', 'a subscription stays under its burst');
select lives_ok($$ update subscription set int_cores = 500 $$, 'and may reach it');
select is(max(float_tier), 1.25, 'tier of a subscription: cores over size') from subscription;
select lives_ok($$ update subscription set int_burst = 100 $$, 'a burst may be set below what is held');
select lives_ok($$ update subscription set int_cores = 450 $$, 'and cores may then be given back');
update subscription set int_cores = 0;
select is(max(float_tier), -400.00, 'tier of a subscription without cores: minus its size') from subscription;
update subscription set int_size = 0;
select is(max(float_tier), 1.00, 'tier of a subscription without size: cores + 1') from subscription;

-- job
update job_resource set int_min_cores = 100, int_max_cores = 400, int_max_gpus = 2 where pk_job = 'guard-job';
select throws_ok($$ update job_resource set int_cores = 401 where pk_job = 'guard-job' $$, 'P0001',
    'job has exceeded max cores', 'a job stays under its maximum of cores');
select throws_ok($$ update job_resource set int_gpus = 3 where pk_job = 'guard-job' $$, 'P0001',
    'job has exceeded max GPU units', 'and of gpus');
update job_resource set int_cores = 400, int_gpus = 2 where pk_job = 'guard-job';
select is(float_tier, 4.00, 'tier of a job: cores over its minimum') from job_resource where pk_job = 'guard-job';
update job_resource set int_max_cores = 200 where pk_job = 'guard-job';
select throws_ok($$ update job_resource set int_gpus = 1, int_max_gpus = 1, int_cores = 401
                     where pk_job = 'guard-job' $$,
    'P0001', 'job has exceeded max cores', 'a job over a lowered maximum cannot grow');
select lives_ok($$ update job_resource set int_cores = 300 where pk_job = 'guard-job' $$, 'but can shrink');

-- folder and department: soft tier
update folder_resource set int_min_cores = 400, int_cores = 100;
select is(max(float_tier), 0.25, 'tier of a folder under its minimum: cores over minimum') from folder_resource;
update folder_resource set int_cores = 500;
select is(max(float_tier), 1.00, 'tier of a folder that has its minimum: 1') from folder_resource;
update point set int_min_cores = 300, int_cores = 0;
select is(max(float_tier), -300.00, 'tier of a department without cores: minus its minimum') from point;

-- proc
select throws_ok($$ insert into proc (pk_proc, pk_host, int_cores_reserved, int_mem_reserved)
                    values ('guard-proc', 'guard-host', 0, 1) $$, 'P0001',
    'a proc must reserve more than 0 cores', 'a booking without cores is refused');
select throws_ok($$ insert into proc (pk_proc, pk_host, int_cores_reserved, int_mem_reserved)
                    values ('guard-proc', 'guard-nobody', 100, 1) $$, '23503', null,
    'a booking on an unknown host is refused');

select * from finish();
rollback;
