-- tag_hardware: rewrites the hardware tags of hosts from their reports, and the tag string that the planner reads.
-- Called by create_hosts and at boot reports. Hosts whose tags are right already are not written.
-- Hardware tags: linux if reported; 64bit and 32bit, or 32bit alone. Locks: host_tag and host rows of these hosts.
create or replace function maestro.tag_hardware(p_hosts maestro.host_report []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_hosts text [];
begin
    with wanted as materialized (
        select h.pk_host, t.tag
        from unnest(p_hosts) as r
        join host as h on h.str_name = r.name
        cross join lateral (
            values ('32bit'),
            (case when '64bit' = any(r.tags) then '64bit' end),
            (case when 'linux' = any(r.tags) then 'linux' end)
        ) as t (tag)
        where t.tag is not null
    ),
    dropped as (
        delete from host_tag as g
        where g.str_tag_type = 'HARDWARE' and g.pk_host in (select w.pk_host from wanted as w)
            and not exists (select from wanted as w where w.pk_host = g.pk_host and w.tag = g.str_tag)
    )
    insert into host_tag (pk_host_tag, pk_host, str_tag, str_tag_type, b_constant)
    select gen_random_uuid()::text, w.pk_host, w.tag, 'HARDWARE', false
    from wanted as w
    where not exists (
        select from host_tag as g
        where g.pk_host = w.pk_host and g.str_tag = w.tag and g.str_tag_type = 'HARDWARE'
    );

    v_hosts := array(select h.pk_host from unnest(p_hosts) as r join host as h on h.str_name = r.name);
    -- The column holds 128 characters: what does not fit is cut at a blank.
    update host as h set str_tags = t.tags
    from (
        select
            g.pk_host,
            case
                when length(string_agg(g.str_tag, ' ' order by g.str_tag_type, g.str_tag)) <= 128
                    then string_agg(g.str_tag, ' ' order by g.str_tag_type, g.str_tag)
                else regexp_replace(
                    left(string_agg(g.str_tag, ' ' order by g.str_tag_type, g.str_tag), 129), ' [^ ]*$', ''
                )
            end as tags
        from host_tag as g where g.pk_host = any(v_hosts) group by g.pk_host
    ) as t
    where h.pk_host = t.pk_host and h.str_tags is distinct from t.tags;
end
$$;
comment on function maestro.tag_hardware(maestro.host_report []) is
    'Brings HARDWARE tags and host.str_tags of the reporting hosts up to date.';
