begin;
select plan(12);

create function pg_temp.matches(p_layer text, p_host text) returns boolean language sql as
    $$ select p_host ~ maestro.tag_pattern(p_layer) $$;

select ok(pg_temp.matches('general', 'desktop general'), 'a whole tag matches');
select ok(pg_temp.matches('GENERAL', 'desktop general'), 'in any case');
select ok(pg_temp.matches('cloud | general', 'general'), 'any alternative will do');
select ok(not pg_temp.matches('general | desktop', 'generalx'), 'the first alternative is held to whole tags too');
select ok(not pg_temp.matches('eral', 'general'), 'a tag''s end is no tag');
select ok(not pg_temp.matches('gen', 'general'), 'a tag''s beginning is no tag');
select ok(pg_temp.matches('', ''), 'no tags match a host without tags');
select ok(pg_temp.matches('', 'general'), 'no tags match every host');
select ok(pg_temp.matches('r\d+', 'rack r12'), 'an expression matches a whole tag');
select ok(not pg_temp.matches('general # note', 'desktop'), 'a comment in the tags swallows nothing of ours');
select is(maestro.tag_pattern('general | ('), null, 'malformed tags have no pattern');
select is(maestro.tag_pattern('[z-a]'), null, 'whatever makes them malformed');

select * from finish();
rollback;
