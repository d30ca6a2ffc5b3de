-- ready_procs: the running procs of hosts, with the moments at which they are expected to end: their start and the mean
-- run time of their layer's successes. A row a host with parallel arrays; end_s is null while the layer has no history.
-- The tick asks only while hosts are held or may be granted. Locks nothing. Seconds since 1970, points, KiB, gpus.
create or replace function maestro.ready_procs(p_hosts text [])
returns table (
    pk_host text, end_s double precision [], cores integer [], mem bigint [], gpus integer [], gpu_mem bigint []
)
language sql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
    select
        p.pk_host,
        array_agg(case when u.int_frame_success_count > 0
            then extract(epoch from p.ts_dispatched)::double precision
                + u.int_clock_time_success::double precision / u.int_frame_success_count
        end),
        array_agg(p.int_cores_reserved::integer), array_agg(p.int_mem_reserved), array_agg(p.int_gpus_reserved),
        array_agg(p.int_gpu_mem_reserved)
    from proc as p
    left join layer_usage as u on u.pk_layer = p.pk_layer
    where p.pk_host = any(p_hosts)
    group by p.pk_host;
$$;
comment on function maestro.ready_procs(text []) is
    'Running procs of hosts, with their expected ends (s since 1970; null: unknown) and what they hold. Locks nothing.';
