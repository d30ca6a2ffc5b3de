-- repair_drift: compares counters with the procs behind them and puts the counters right, so that the plan that follows
-- goes by what really runs. The tick's phase 2, before the snapshot.
--
-- A farm with few procs is compared as a whole each tick. A larger one is cut into slices, forty at most, by a hash of
-- the host: each tick compares the hosts of one slice, and one tick in a round all the owners' counters (subscription,
-- layer, job, folder, point, limit), whose truth needs every proc.
-- What is found wrong is locked, counted again under the lock, and written; caps cannot refuse a repair.
-- Every repair is a row of maestro.fault, kind drift. A host that holds more than it has gets nothing idle.
-- Locks: host rows, then the owners' tables in the order of release_procs, each sorted by key; only rows that are
-- wrong. Result: rows repaired.
create or replace function maestro.repair_drift(p_tick_id bigint, p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_procs_per_slice constant integer := 2000;
    v_slices integer;
    v_slice integer;
    v_hosts text [];
    v_wrong text [];
    v_rows integer;
    v_count integer := 0;
begin
    select least(greatest(ceil(coalesce(sum(js.int_running_count), 0)::numeric / v_procs_per_slice), 1), 40)
    into v_slices
    from job_stat as js;
    v_slice := mod(p_tick_id, v_slices);

    v_hosts := case when v_slices > 1 then array(
        select h.pk_host from host as h where mod(hashtext(h.pk_host)::bigint + 2147483648, v_slices) = v_slice
    ) end;
    select array_agg(d.pk_host) into v_wrong from maestro.host_drift(v_hosts) as d;
    if v_wrong is not null then
        perform from host as h where h.pk_host = any(v_wrong) order by h.pk_host for no key update;
        with repaired as (
            update host as h set
                int_cores_idle = d.cores_idle, int_mem_idle = d.mem_idle,
                int_gpus_idle = d.gpus_idle, int_gpu_mem_idle = d.gpu_mem_idle
            from maestro.host_drift(v_wrong) as d
            where h.pk_host = d.pk_host
            returning d.*
        )
        insert into maestro.fault (at, kind, detail)
        select p_now, 'drift', jsonb_build_object('what', 'host', 'id', r.pk_host, 'idle', to_jsonb(r) - 'pk_host')
        from repaired as r;
        get diagnostics v_count = row_count;
    end if;

    if v_slice = 0 then
        select array_agg(d.what || ' ' || d.id) into v_wrong from maestro.owner_drift() as d;
        if v_wrong is not null then
            v_count := v_count + maestro.repair_owners(v_wrong, p_now);
        end if;
    end if;
    return v_count;
end
$$;
comment on function maestro.repair_drift(bigint, timestamp with time zone) is
    'Puts counters right that do not agree with the procs: all of them on a small farm, a slice a tick on a large one; '
    'returns rows repaired. Locks rows that are wrong.';
