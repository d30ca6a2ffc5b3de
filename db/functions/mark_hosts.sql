-- mark_hosts: notes what hosts' reports say about their room, so that a change of it can be told (refuse_sizes).
-- Called by report_status and report_startup, which hold the hosts' host_stat rows, so nobody else writes these rows.
-- p_reports: the reports as they came, an array; p_boot: any boot report is a change. Of several of one host the last
-- counts. Locks: host_mark rows of these hosts. Errors: none of its own.
create or replace function maestro.mark_hosts(p_reports jsonb, p_boot boolean, p_now timestamptz) returns void
language sql volatile
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    with told as (
        select distinct on (k.name) k.name, hashtext(k.said::text) as mark
        from (
            select
                maestro.report_host_name(e.body -> 'host', 'report') as name, e.place,
                jsonb_build_array(
                    coalesce(e.body -> 'core_info', e.body -> 'coreInfo'),
                    coalesce(e.body #> '{host,num_procs}', e.body #> '{host,numProcs}'),
                    coalesce(e.body #> '{host,cores_per_proc}', e.body #> '{host,coresPerProc}'),
                    coalesce(e.body #> '{host,total_mem}', e.body #> '{host,totalMem}'),
                    coalesce(e.body #> '{host,num_gpus}', e.body #> '{host,numGpus}'),
                    coalesce(e.body #> '{host,nimby_locked}', e.body #> '{host,nimbyLocked}'),
                    e.body #> '{host,state}',
                    case jsonb_typeof(e.body -> 'frames') when 'array' then jsonb_array_length(e.body -> 'frames') end,
                    case when p_boot then p_now end
                ) as said
            from jsonb_array_elements(p_reports) with ordinality as e (body, place)
        ) as k
        order by k.name, k.place desc
    )
    insert into maestro.host_mark as m (pk_host, mark)
    select h.pk_host, t.mark
    from told as t
    join host as h on h.str_name = t.name
    left join maestro.host_mark as o on o.pk_host = h.pk_host
    where o.mark is distinct from t.mark
    order by h.pk_host
    on conflict (pk_host) do update set mark = excluded.mark;
$$;
comment on function maestro.mark_hosts(jsonb, boolean, timestamp with time zone) is
    'Stores a hash of what each report says about its host''s room, where that has changed.';
