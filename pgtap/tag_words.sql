begin;
select plan(4);

select is(maestro.tag_words(' General|desk-top | r_12 '), array['general', 'desk-top', 'r_12'], 'plain alternatives');
select is(
    (
        select array_agg(t order by t collate "C") from unnest(array[
            '', ' ', 'a b', 'a |', '| a', 'a || b', 'a*', 'r.12', '(a)', '^a', 'a$', 'a # b', '\d', 'ä', '[ab]'
        ]) as t
        where maestro.tag_words(t) is not null
    ), null, 'whatever else an expression may hold is none of its own'
);
create temp table sides as
with tag (t) as (values ('a'), ('B'), ('ab'), ('a-b'), ('b_2'), ('12'))
select
    concat_ws(s, x.t, y.t, z.t) as layer_tags, lower(concat_ws(' ', x.t, z.t)) as host_tags
from tag as x, tag as y, tag as z, (values ('|'), (' | '), (E'\t|\n')) as separators (s)
union select x.t, upper(x.t) from tag as x
union select ' ' || x.t || E'\n', '' from tag as x;
select cmp_ok(count(*), '>', 600::bigint, 'there are many tags to try')
from sides where maestro.tag_words(layer_tags) is not null;
select is(
    (
        select count(*)
        from (select distinct s.layer_tags from sides as s) as l
        cross join (select distinct s.host_tags from sides as s) as h
        where (h.host_tags ~ maestro.tag_pattern(l.layer_tags))
            is distinct from (maestro.tag_words(l.layer_tags) && string_to_array(lower(h.host_tags), ' '))
    ), 0::bigint, 'words match what the expression matches'
);

select * from finish();
rollback;
