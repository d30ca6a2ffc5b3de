-- Runs of frames are queued as events: S start, E end, X discard.
begin;
select plan(10);

insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                 pk_facility, pk_dept)
select 'hist-job', f.pk_folder, f.pk_show, 'hist-job', 'hist-job', 'shot', 'user', 'PENDING', c.pk_facility, f.pk_dept
  from folder f, facility c
 where f.b_default and c.b_default
 limit 1;
insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
values ('hist-layer', 'hist-job', 'layer', 'true', '1-9', 'RENDER');
insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
select 'hist-' || i, 'hist-layer', 'hist-job', i || '-layer', 'WAITING', i, 1 from generate_series(1, 4) i;
insert into host (pk_host, pk_alloc, str_name, str_lock_state)
select 'hist-host', pk_alloc, 'hist-host', 'OPEN' from alloc where b_default limit 1;

update frame set ts_updated = now() where pk_job = 'hist-job';
select is_empty($$ select from frame_history_queue where pk_frame like 'hist-%' $$, 'no change of state, no event');

update frame
   set str_state = 'RUNNING', str_host = 'hist-host', int_cores = 200, int_mem_reserved = 4194304, int_gpus = 1,
       int_gpu_mem_reserved = 1048576, ts_started = to_timestamp(1000), ts_stopped = null
 where pk_frame = 'hist-1';
select results_eq(
    $$ select str_event::text, pk_layer::text, pk_job::text, str_name::text, str_host::text, int_cores,
              int_mem_reserved, int_gpus, int_gpu_mem_reserved, int_ts
         from frame_history_queue where pk_frame = 'hist-1' $$,
    $$ values ('S', 'hist-layer', 'hist-job', '1-layer', 'hist-host', 200, 4194304::bigint, 1, 1048576::bigint,
              1000) $$,
    'a start queues S with what the frame holds');
select is(q.pk_alloc, h.pk_alloc, 'and with the allocation of its host')
  from frame_history_queue q, host h where q.pk_frame = 'hist-1' and h.pk_host = 'hist-host';

update frame set str_state = 'RUNNING', str_host = 'stranger', ts_started = to_timestamp(1000), ts_stopped = null
 where pk_frame in ('hist-2', 'hist-3', 'hist-4');
select results_eq(
    $$ select count(*), count(pk_alloc) from frame_history_queue where pk_frame like 'hist-%' and str_event = 'S' $$,
    $$ values (4::bigint, 1::bigint) $$, 'a start on an unknown host is queued without an allocation');

update frame
   set str_state = case pk_frame when 'hist-1' then 'SUCCEEDED' else 'WAITING' end,
       int_exit_status = case pk_frame when 'hist-1' then 0 when 'hist-2' then 299 else 1 end,
       str_checkpoint_state = case pk_frame when 'hist-3' then 'ENABLED' else 'DISABLED' end,
       int_mem_max_used = 777, int_gpu_mem_max_used = 88, ts_stopped = to_timestamp(1060)
 where pk_job = 'hist-job';
select results_eq(
    $$ select pk_frame::text, str_event::text, int_exit_status, int_checkpoint_count
         from frame_history_queue where pk_frame like 'hist-%' and str_event <> 'S' order by pk_frame $$,
    $$ values ('hist-1', 'E', 0::bigint, 0), ('hist-2', 'X', 299::bigint, 0),
              ('hist-3', 'E', 1::bigint, 1), ('hist-4', 'E', 1::bigint, 0) $$,
    'ends queue E, a cleared booking (299) X, a checkpoint is counted');
select results_eq(
    $$ select int_ts, int_mem_max_used, int_gpu_mem_max_used from frame_history_queue
        where pk_frame = 'hist-1' and str_event = 'E' $$,
    $$ values (1060, 777::bigint, 88::bigint) $$, 'E carries the stop and the peaks');
select ok(
    (select max(id) from frame_history_queue where pk_frame like 'hist-%' and str_event = 'S')
    < (select min(id) from frame_history_queue where pk_frame like 'hist-%' and str_event = 'E'),
    'ids keep the order of events');

update frame set str_state = 'DEAD' where pk_frame = 'hist-4';
select is(count(*), 2::bigint, 'states other than RUNNING queue nothing')
  from frame_history_queue where pk_frame = 'hist-4';

insert into config (pk_config, str_key, b_value) values ('hist-off', 'DISABLE_HISTORY', false);
update frame set str_state = 'RUNNING' where pk_frame = 'hist-4';
update frame set str_state = 'SUCCEEDED' where pk_frame = 'hist-4';
select is(count(*), 2::bigint, 'DISABLE_HISTORY stops the queue, whatever its value')
  from frame_history_queue where pk_frame = 'hist-4';
select is(int_succeeded_count, 2::bigint, 'but not the counters') from layer_stat where pk_layer = 'hist-layer';

select * from finish();
rollback;
