-- host_drift: hosts whose idle amounts are not what their procs leave, with what would be right; null: all hosts.
-- Called by repair_drift. Locks nothing.
create or replace function maestro.host_drift(p_hosts text [])
returns table (pk_host text, cores_idle bigint, mem_idle bigint, gpus_idle bigint, gpu_mem_idle bigint)
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
begin
    -- Two statements, since a plan that must serve both would read every proc for a handful of hosts.
    if p_hosts is null then
        return query
        select h.pk_host::text, e.cores::bigint, e.mem::bigint, e.gpus::bigint, e.gpu_mem::bigint
        from host as h
        left join (
            select
                p.pk_host, sum(p.int_cores_reserved::float8) as cores, sum(p.int_mem_reserved::float8) as mem,
                sum(p.int_gpus_reserved::float8) as gpus, sum(p.int_gpu_mem_reserved::float8) as gpu_mem
            from proc as p group by p.pk_host
        ) as p on p.pk_host = h.pk_host
        cross join lateral (
            select
                greatest(h.int_cores - coalesce(p.cores, 0), 0) as cores, greatest(h.int_mem - coalesce(p.mem, 0), 0) as mem,
                greatest(h.int_gpus - coalesce(p.gpus, 0), 0) as gpus,
                greatest(h.int_gpu_mem - coalesce(p.gpu_mem, 0), 0) as gpu_mem
        ) as e
        where h.int_cores_idle <> e.cores or h.int_mem_idle <> e.mem
            or h.int_gpus_idle <> e.gpus or h.int_gpu_mem_idle <> e.gpu_mem;
    else
        return query
        select h.pk_host::text, e.cores::bigint, e.mem::bigint, e.gpus::bigint, e.gpu_mem::bigint
        from unnest(p_hosts) as k (pk_host)
        join host as h on h.pk_host = k.pk_host
        cross join lateral (
            select
                greatest(h.int_cores - coalesce(sum(p.int_cores_reserved::float8), 0), 0) as cores,
                greatest(h.int_mem - coalesce(sum(p.int_mem_reserved::float8), 0), 0) as mem,
                greatest(h.int_gpus - coalesce(sum(p.int_gpus_reserved::float8), 0), 0) as gpus,
                greatest(h.int_gpu_mem - coalesce(sum(p.int_gpu_mem_reserved::float8), 0), 0) as gpu_mem
            from proc as p where p.pk_host = h.pk_host
        ) as e
        where h.int_cores_idle <> e.cores or h.int_mem_idle <> e.mem
            or h.int_gpus_idle <> e.gpus or h.int_gpu_mem_idle <> e.gpu_mem;
    end if;
end
$$;
comment on function maestro.host_drift(text []) is
    'Hosts (of p_hosts; null: of all) whose idle amounts do not agree with their procs, and the right amounts (core '
    'points, KiB, gpus, KiB). Locks nothing.';
