-- submit_job: codes, places and hints of refusals, and what one small job becomes.
begin;
select plan(22);

-- A spec of one layer, with the top, the job or the layer changed.
create function pg_temp.spec(p_top jsonb default '{}', p_job jsonb default '{}', p_layer jsonb default '{}')
returns jsonb language sql as $$
    select '{"show": "demo", "shot": "sh01", "user": "anna", "uid": 1000}'::jsonb || jsonb_build_object(
        'jobs', jsonb_build_array('{"name": "work"}'::jsonb || jsonb_build_object('layers', jsonb_build_array(
            '{"name": "render", "cmd": "true", "range": "1-4"}'::jsonb || p_layer)) || p_job)) || p_top
$$;

create function pg_temp.refusal(p_spec jsonb) returns text language plpgsql as $$
declare
    v_message text;
    v_detail text;
    v_hint text;
begin
    perform maestro.submit_job(p_spec);
    return 'accepted';
exception when sqlstate 'QM001' then
    get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    return concat_ws(' | ', v_message, v_detail, case when v_hint = '' then 'no hint' end);
end
$$;

select throws_ok($$ select maestro.submit_job(null) $$, 'QM001', null, 'no spec');
select throws_ok($$ select maestro.submit_job('[]') $$, 'QM001', 'spec: is a list', 'a list is no spec');
select is(
    pg_temp.refusal(pg_temp.spec('{"show": "nope"}')), 'show: "nope" is not a show | show', 'unknown show');
select is(
    pg_temp.refusal(pg_temp.spec('{"facility": "moon"}')), 'facility: "moon" is not a facility | facility',
    'unknown facility');
select is(pg_temp.refusal(pg_temp.spec('{"user": "root"}')), 'user: root may not submit | user', 'root is refused');
select is(pg_temp.refusal(pg_temp.spec('{"uid": 0}')), 'uid: 0 may not submit | uid', 'uid 0 is refused');
select is(
    pg_temp.refusal(pg_temp.spec('{}', '{"layers": []}')), 'job work, layers: the job has no layers | jobs[0].layers',
    'no layers');
select is(
    pg_temp.refusal(pg_temp.spec('{}', '{}', '{"range": "1-"}')),
    'job work, layer render, range: "1-" is not a frame range | jobs[0].layers[0].range', 'bad range');
select is(
    pg_temp.refusal(pg_temp.spec('{}', '{}', '{"cores": "2000.0"}')),
    'job work, layer render, cores: "2000.0" is out of bounds | jobs[0].layers[0].cores', 'cores out of bounds');
select is(
    pg_temp.refusal(pg_temp.spec('{}', '{}', '{"limits": ["gone"]}')),
    'job work, layer render, limits: "gone" is not a limit | jobs[0].layers[0].limits', 'unknown limit');
select is(
    pg_temp.refusal(pg_temp.spec('{"depends": [{"type": "LAYER_ON_LAYER", "deplayer": "render", "onlayer": "fur"}]}')),
    'depend 0, onlayer: job demo-sh01-anna_work has no layer "fur" | depends[0].onlayer', 'depend on a missing layer');
select is(
    pg_temp.refusal(pg_temp.spec('{"depends": [{"type": "LAYER_ON_JOB", "deplayer": "render"}]}')),
    'depends: wait for each other: render -> the job -> render | depends', 'a layer that waits for its own job');
select is_empty($$ select 1 from job union all select 1 from layer union all select 1 from frame $$,
    'refusals store nothing');

select is(
    maestro.submit_job(pg_temp.spec()) #- '{jobs,0,pk_job}',
    '{"jobs": [{"name": "demo-sh01-anna_work", "frames": 4, "layers": 1}], "warnings": []}', 'the answer');
select results_eq(
    $$ select str_name::text, str_state::text, int_dispatch_order from frame order by int_dispatch_order $$,
    $$ values ('0001-render', 'WAITING', 0::bigint), ('0002-render', 'WAITING', 1),
       ('0003-render', 'WAITING', 2), ('0004-render', 'WAITING', 3) $$, 'frames wait in order');
select results_eq(
    $$ select int_waiting_count, int_depend_count from job_stat $$, $$ values (4::bigint, 0::bigint) $$,
    'counters are assigned');
select is(
    pg_temp.refusal(pg_temp.spec()),
    'job work, name: a job named "demo-sh01-anna_work" is pending | jobs[0].name', 'a living job keeps its name');
select is(
    maestro.submit_job(pg_temp.spec('{"depends": [{"type": "JOB_ON_JOB", "onjob": "work", "depjob": "next"}]}',
        '{"name": "next"}')) #>> '{jobs,0,name}', 'demo-sh01-anna_next', 'a job may wait for another');
select results_eq(
    $$ select str_type::text, str_target::text, b_active, b_composite from depend $$,
    $$ values ('JOB_ON_JOB', 'EXTERNAL', true, false) $$, 'its depend row');
select results_eq(
    $$ select distinct frame.str_state::text from frame join job using (pk_job) where job.str_name like '%next' $$,
    $$ values ('DEPEND') $$, 'its frames depend');
select function_privs_are('maestro', 'submit_job', array['jsonb'], 'public', '{}'::text [], 'not for everyone');
select is_empty($$ select * from maestro.check_accounting() $$, 'the books balance');

select * from finish();
rollback;
