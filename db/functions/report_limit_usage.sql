-- report_limit_usage: what a licence server says about the use of limits. Called by a site's reporter.
-- p_report, an object or an array of them, each a whole picture of one limit:
--   {"limit": name, "captured_at": time (ISO 8601, or seconds since 1970; absent: now), "source": text,
--    "hosts": [{"host": name, "tokens": n (absent: 1), "user": text}, ...]}   no hosts: nothing is in use
-- Result: {"applied": [name], "unknown": [name], "skipped": [{"limit": name, "reason": why}]}; why is OUT_OF_ORDER (a
-- picture not later than the last) or RATE_LIMITED (limit_min_report_interval_seconds not over yet).
-- Errors: QM001 for a report that cannot be right; nothing of the call is stored then.
-- Locks: limit_record rows sorted by key (a tick that books limited layers holds them until it ends), then limit_host
-- and limit_usage rows of these.
create or replace function maestro.report_limit_usage(p_report jsonb, p_now timestamptz default now()) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_reports jsonb := maestro.report_list(p_report, 'limit report');
    v_picture record;
    v_last record;
    v_applied text [] := '{}';
    v_unknown text [] := '{}';
    v_skipped jsonb := '[]';
begin
    perform from limit_record as r
    where r.str_name in (select e ->> 'limit' from jsonb_array_elements(v_reports) as e)
    order by r.pk_limit_record for no key update;

    -- A report names few limits, and later pictures of one limit stand on earlier ones.
    for v_picture in
        select
            maestro.report_text(e.body ->> 'limit', 'limit', 'limit report') as name,
            least(maestro.report_time(e.body -> 'captured_at', 'captured_at', 'limit report', p_now), p_now) as captured,
            left(e.body ->> 'source', 255) as source,
            case jsonb_typeof(e.body -> 'hosts') when 'array' then e.body -> 'hosts' end as hosts,
            jsonb_typeof(e.body -> 'hosts') as kind
        from jsonb_array_elements(v_reports) with ordinality as e (body, place)
        order by e.place
    loop
        if v_picture.hosts is null and v_picture.kind <> 'null' then
            raise exception using
                errcode = 'QM001',
                message = format('limit report of %s: hosts cannot be %s', v_picture.name, v_picture.kind),
                hint = 'Allowed: an array of objects.';
        end if;
        perform
            maestro.report_text(h ->> 'host', 'host', 'limit report of ' || v_picture.name),
            maestro.report_number(
                coalesce(h ->> 'tokens', '1'), 'tokens', 'limit report of ' || v_picture.name, 1, 1000000
            )
        from jsonb_array_elements(coalesce(v_picture.hosts, '[]')) as h;

        select r.pk_limit_record, r.str_name, r.ts_reported, u.ts_watermark, u.ts_updated into v_last
        from limit_record as r
        left join limit_usage as u on u.pk_limit_record = r.pk_limit_record
        where r.str_name = v_picture.name;
        if not found then
            v_unknown := v_unknown || v_picture.name;
            continue;
        end if;
        if v_picture.captured <= v_last.ts_watermark then
            v_skipped := v_skipped || jsonb_build_object('limit', v_picture.name, 'reason', 'OUT_OF_ORDER');
            continue;
        end if;
        if v_last.ts_watermark is not null and p_now < v_last.ts_updated
            + make_interval(secs => (select maestro.setting('limit_min_report_interval_seconds'))::integer)
        then
            v_skipped := v_skipped || jsonb_build_object('limit', v_picture.name, 'reason', 'RATE_LIMITED');
            continue;
        end if;

        with held as materialized (
            select
                lower(maestro.short_host(max(k.name))) as name, max(k.name) as reported, sum(k.tokens) as tokens,
                max(k.holder) as holder
            from (
                select
                    h ->> 'host' as name, coalesce(h ->> 'tokens', '1')::bigint as tokens,
                    left(h ->> 'user', 64) as holder
                from jsonb_array_elements(coalesce(v_picture.hosts, '[]')) as h
            ) as k
            group by lower(maestro.short_host(k.name))
        ),
        gone as (
            delete from limit_host as l
            where l.pk_limit_record = v_last.pk_limit_record
                and not exists (select from held as h where h.name = l.str_host_name)
        ),
        kept as (
            insert into limit_host as l (
                pk_limit_host, pk_limit_record, str_host_name, str_reported_name, int_tokens, str_user, ts_reported
            )
            select
                gen_random_uuid()::text, v_last.pk_limit_record, h.name, h.reported, h.tokens, h.holder,
                v_picture.captured
            from held as h
            order by h.name
            on conflict (pk_limit_record, str_host_name) do update set
                str_reported_name = excluded.str_reported_name, int_tokens = excluded.int_tokens,
                str_user = excluded.str_user, ts_reported = excluded.ts_reported
        )
        insert into limit_usage as u (
            pk_limit_record, int_settled_usage, int_settled_hosts, ts_watermark, ts_updated
        )
        select v_last.pk_limit_record, coalesce(sum(h.tokens), 0), count(*), v_picture.captured, p_now from held as h
        on conflict (pk_limit_record) do update set
            int_settled_usage = excluded.int_settled_usage, int_settled_hosts = excluded.int_settled_hosts,
            ts_watermark = excluded.ts_watermark, ts_updated = excluded.ts_updated;

        update limit_record set ts_reported = v_picture.captured, str_report_source = v_picture.source
        where pk_limit_record = v_last.pk_limit_record;
        v_applied := v_applied || v_picture.name;
    end loop;
    return jsonb_build_object('applied', v_applied, 'unknown', v_unknown, 'skipped', v_skipped);
end
$$;
comment on function maestro.report_limit_usage(jsonb, timestamp with time zone) is
    'Takes whole pictures of limits'' use ({"limit", "captured_at", "source", "hosts": [{"host", "tokens", "user"}]}, or '
    'an array): {"applied", "unknown", "skipped": [{"limit", "reason"}]}. QM001 for a report that cannot be right.';
