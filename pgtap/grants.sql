begin;
select plan(11);

select ok(has_function_privilege('maestro_tick', 'public.maestro_tick(boolean, bigint)', 'execute'),
    'maestro_tick may call the tick');
select ok(not has_function_privilege('public', 'public.maestro_tick(boolean, bigint)', 'execute'),
    'nobody else by default');
select ok(not has_table_privilege('maestro_tick', 'public.frame', 'select'), 'maestro_tick reads no table');
select is((
    select array_agg(p.proname::text order by p.proname)
    from pg_proc as p
    where p.pronamespace = 'maestro'::regnamespace and has_function_privilege('maestro_launcher', p.oid, 'execute')
), array[
    'claim_launches', 'claim_orders', 'claim_unconfirmed', 'finish_launches', 'finish_orders', 'finish_unconfirmed',
    'heartbeat_launcher', 'launcher_metrics', 'leave_launcher', 'register_launcher', 'report_completion',
    'report_startup', 'report_status', 'return_claims'
], 'maestro_launcher may call its functions and nothing else');
select is((
    select count(*) from pg_class as c
    where (c.relnamespace = 'maestro'::regnamespace and c.relkind in ('r', 'v')
            or c.relnamespace = 'public'::regnamespace and c.relkind = 'r')
        and has_table_privilege('maestro_launcher', c.oid, 'select, insert, update, delete')
), 0::bigint, 'maestro_launcher touches no table');
select ok(has_table_privilege('maestro_reader', 'maestro.placement', 'select'), 'maestro_reader reads placements');
select ok(not has_table_privilege('maestro_reader', 'maestro.setting', 'update'), 'maestro_reader sets nothing');
select ok(has_column_privilege('maestro_admin', 'maestro.setting', 'value', 'update'), 'maestro_admin sets values');
select ok(not has_column_privilege('maestro_admin', 'maestro.setting', 'kind', 'update'), 'and nothing but values');
select is((
    select count(*) from pg_proc as p
    where p.prosecdef and p.pronamespace in ('maestro'::regnamespace, 'public'::regnamespace)
        and not exists (select from unnest(p.proconfig) as c where c like 'search_path=%pg_temp')
), 0::bigint, 'every function that runs as its owner has a fixed search_path');

set role maestro_reader;
select lives_ok($$
    select count(*) from maestro.setting, maestro.tick, maestro.placement, maestro.waitlist, maestro.launch,
        maestro.reservation, maestro.host_ready_at, maestro.alloc_work, maestro.show_share,
        maestro.layer_rank
$$, 'maestro_reader reads every table and view of the contract');
reset role;

select * from finish();
rollback;
