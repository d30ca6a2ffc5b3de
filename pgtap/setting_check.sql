begin;
select plan(9);

select throws_ok($$ update maestro.setting set value = 'sometimes' where name = 'mode' $$, 'QM001',
    'setting mode cannot be ''sometimes''', 'a choice outside the list is refused');
select throws_ok($$ update maestro.setting set value = '1.5' where name = 'tick_budget_ms' $$, 'QM001', null,
    'a fraction is no whole number');
select throws_ok($$ update maestro.setting set value = '-1' where name = 'job_frame_dispatch_max' $$, 'QM001', null,
    'a value below the range is refused');
select throws_ok($$ update maestro.setting set value = '1001' where name = 'score_weight_cores' $$, 'QM001', null,
    'a value above the range is refused');
select throws_ok($$ update maestro.setting set value = 'NaN' where name = 'score_weight_cores' $$, 'QM001', null,
    'not-a-number is refused');
select throws_ok($$ update maestro.setting set name = 'other' where name = 'mode' $$, 'QM001', null,
    'a setting keeps its name');
select lives_ok($$ update maestro.setting set value = ' 2.5 ' where name = 'score_weight_cores' $$,
    'a number in range is taken');
select is((select value from maestro.setting where name = 'score_weight_cores'), '2.5', 'and stored trimmed');
select maestro.define_settings();
select is(maestro.setting('score_weight_cores'), '2.5', 'an upgrade keeps values that were set');

select * from finish();
rollback;
