-- repair_owners: writes the counters of p_wrong (each 'table id', as owner_drift names them) as the procs say.
-- Called by repair_drift. Locks subscription, layer_resource, job_resource, folder_resource, point, limit_record and
-- limit_usage rows in this order, sorted by key; what is right is asked again under the locks.
-- A cap below what runs must not refuse the truth: a row's cap moves up with the counter and back after it, since the
-- tables' guards look at counters that grow under an unchanged cap alone.
-- Result: rows repaired, each of them a row of maestro.fault.
create or replace function maestro.repair_owners(p_wrong text [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_ids jsonb := (
        select jsonb_object_agg(g.what, g.ids)
        from (
            select split_part(w, ' ', 1) as what, jsonb_agg(substr(w, strpos(w, ' ') + 1)) as ids
            from unnest(p_wrong) as w group by 1
        ) as g
    );
    v_right jsonb;
    v_count integer;
begin
    perform from subscription where v_ids -> 'subscription' ? pk_subscription
    order by pk_subscription for no key update;
    perform from layer_resource where v_ids -> 'layer_resource' ? pk_layer order by pk_layer for no key update;
    perform from job_resource where v_ids -> 'job_resource' ? pk_job order by pk_job for no key update;
    perform from folder_resource where v_ids -> 'folder_resource' ? pk_folder_resource
    order by pk_folder_resource for no key update;
    perform from point where v_ids -> 'point' ? pk_point order by pk_point for no key update;
    -- In the order of report_limit_usage, which holds the limit when it wants its usage.
    perform from limit_record where v_ids -> 'limit_usage' ? pk_limit_record order by pk_limit_record for no key update;
    perform from limit_usage where v_ids -> 'limit_usage' ? pk_limit_record order by pk_limit_record for no key update;

    select jsonb_agg(to_jsonb(d)) into v_right from maestro.owner_drift() as d where v_ids -> d.what ? d.id;
    if v_right is null then
        return 0;
    end if;

    update subscription as t set int_cores = r.cores, int_gpus = r.gpus, int_burst = t.int_burst + 1
    from jsonb_to_recordset(v_right) as r (what text, id text, cores integer, gpus integer)
    where r.what = 'subscription' and t.pk_subscription = r.id;
    update subscription as t set int_burst = t.int_burst - 1
    from jsonb_to_recordset(v_right) as r (what text, id text)
    where r.what = 'subscription' and t.pk_subscription = r.id;

    update layer_resource as t set int_cores = r.cores, int_gpus = r.gpus
    from jsonb_to_recordset(v_right) as r (what text, id text, cores bigint, gpus integer)
    where r.what = 'layer_resource' and t.pk_layer = r.id;

    update job_resource as t set
        int_cores = r.cores, int_gpus = r.gpus, int_local_cores = r.local_cores, int_local_gpus = r.local_gpus,
        int_max_cores = t.int_max_cores + 1, int_max_gpus = t.int_max_gpus + 1
    from jsonb_to_recordset(v_right) as r (
        what text, id text, cores bigint, gpus integer, local_cores integer, local_gpus integer
    )
    where r.what = 'job_resource' and t.pk_job = r.id;
    update job_resource as t set int_max_cores = t.int_max_cores - 1, int_max_gpus = t.int_max_gpus - 1
    from jsonb_to_recordset(v_right) as r (what text, id text)
    where r.what = 'job_resource' and t.pk_job = r.id;

    update folder_resource as t set int_cores = r.cores, int_gpus = r.gpus
    from jsonb_to_recordset(v_right) as r (what text, id text, cores integer, gpus integer)
    where r.what = 'folder_resource' and t.pk_folder_resource = r.id;

    update point as t set int_cores = r.cores, int_gpus = r.gpus
    from jsonb_to_recordset(v_right) as r (what text, id text, cores integer, gpus integer)
    where r.what = 'point' and t.pk_point = r.id;

    update limit_usage as t set int_settled_usage = r.cores, int_settled_hosts = r.gpus
    from jsonb_to_recordset(v_right) as r (what text, id text, cores integer, gpus integer)
    where r.what = 'limit_usage' and t.pk_limit_record = r.id;

    insert into maestro.fault (at, kind, detail)
    select p_now, 'drift', r.value from jsonb_array_elements(v_right) as r;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function maestro.repair_owners(text [], timestamp with time zone) is
    'Writes owners'' counters as the procs say, under locks; returns rows repaired.';
