-- limit_usage_now: how far the limits p_limits are used at p_now, in their own unit: frames, or machines with a seat.
-- Called by limit_headrooms and trim_limits. Locks nothing.
--
-- Usage is what the licence server reported last (limit_host) plus the procs of bound layers that started after
-- the settle window before that report, since their tokens may not be in it; without any report, all procs count.
-- HOST: machines that start within the window count only if the report does not hold them already. holders are all
-- machines that need no new seat: reported ones of ours, and those with a proc of a bound layer, however old.
create or replace function maestro.limit_usage_now(p_limits text [], p_now timestamptz)
returns table (pk_limit_record text, used bigint, holders text [])
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    with asked as materialized (
        select
            r.pk_limit_record, r.str_type = 'HOST' as per_host,
            coalesce(
                r.ts_reported - make_interval(secs => (select maestro.setting('limit_settle_window_seconds'))::integer),
                '-infinity'
            ) as since
        from limit_record as r
        where r.pk_limit_record = any(p_limits)
    ),
    reported as materialized (
        select lh.pk_limit_record, lh.int_tokens, h.pk_host
        from limit_host as lh
        left join host as h on lower(maestro.short_host(h.str_name)) = lower(maestro.short_host(lh.str_host_name))
        where lh.pk_limit_record = any(p_limits)
    ),
    running as materialized (
        select a.pk_limit_record, p.pk_host, count(*) filter (where p.ts_dispatched > a.since) as pending
        from asked as a
        join layer_limit as ll on ll.pk_limit_record = a.pk_limit_record
        join proc as p on p.pk_layer = ll.pk_layer
        group by a.pk_limit_record, p.pk_host
    )
    select
        a.pk_limit_record,
        case when a.per_host then
            (select count(*) from reported as s where s.pk_limit_record = a.pk_limit_record)
            + (
                select count(*) from running as n
                where n.pk_limit_record = a.pk_limit_record and n.pending > 0 and not exists (
                    select from reported as s
                    where s.pk_limit_record = n.pk_limit_record and s.pk_host = n.pk_host
                )
            )
        else
            coalesce((select sum(s.int_tokens) from reported as s where s.pk_limit_record = a.pk_limit_record), 0)
            + coalesce((select sum(n.pending) from running as n where n.pk_limit_record = a.pk_limit_record), 0)::bigint
        end,
        case when a.per_host then array(
            select s.pk_host from reported as s
            where s.pk_limit_record = a.pk_limit_record and s.pk_host is not null
            union
            select n.pk_host from running as n where n.pk_limit_record = a.pk_limit_record
        ) end
    from asked as a;
$$;
comment on function maestro.limit_usage_now(text [], timestamp with time zone) is
    'Use of limits (frames or machines) and, for HOST limits, the machines that need no new seat. Locks nothing.';
