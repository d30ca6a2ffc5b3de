begin;
select plan(16);

select is(maestro.report_number('12', 'f', 'w'), 12::bigint, 'a number');
select is(maestro.report_number(null, 'f', 'w'), 0::bigint, 'absent is protobuf''s default');
select throws_ok($$ select maestro.report_number('-1', 'free_mem', 'report of host h') $$, 'QM001',
    'report of host h: free_mem cannot be -1', 'a negative size names field and value');
select throws_ok($$ select maestro.report_number('1.5', 'f', 'w') $$, 'QM001', null, 'no fractions');
select throws_ok($$ select maestro.report_number('99999999999999999999', 'f', 'w') $$, 'QM001', null, 'no overflow');
select is(maestro.short_host('a.b.c'), 'a', 'a host is known by its short name');
select is(maestro.short_host('10.0.0.1'), '10.0.0.1', 'an address by itself');
select is(maestro.short_host('fe80::1'), 'fe80::1', 'of either kind');
select throws_ok($$ select maestro.report_completion('{"frame": {}}') $$, 'QM001',
    'completion without a host name', 'a completion names its host');
select throws_ok(
    $$ select maestro.report_completion('{"host": {"name": "h"}, "frame": {"frame_id": "f", "resource_id": "p"},
        "exit_status": "x"}') $$,
    'QM001', 'completion from host h: exit_status cannot be x', 'an exit status is a number');
select throws_ok(
    $$ select maestro.report_completion('{"host": {"name": "h"}, "frame": {"frame_id": "f", "resource_id": "p"}}') $$,
    'QM002', 'completion from host h, which nobody knows', 'an unknown host is named');
select is_empty('select * from maestro.completion', 'and nothing of it is stored');
select throws_ok($$ select maestro.kill_job('nix') $$, 'QM002', 'no job nix', 'an unknown job is named');
select throws_ok($$ select maestro.drain_host('nix', 'why') $$, 'QM002', 'no host nix', 'so is a host');
select throws_ok($$ select maestro.undrain_host('nix') $$, 'QM002', 'no host nix', 'in every verb');
select is_empty('select * from maestro.check_accounting()', 'a new farm''s books are right');

select * from finish();
rollback;
