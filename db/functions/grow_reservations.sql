-- grow_reservations: a proc that uses more memory than it reserved reserves what it uses, as far as its host has it.
-- Called by report_status for the procs p_procs, which it has locked. The trigger on proc takes the growth off the
-- host's idle memory. The host row is locked first, so that its idle memory cannot fall meanwhile; several procs of
-- one host share it in key order, each as much as is left. What a host lacks now the next report asks for again.
-- Locks: host rows sorted by key, skip locked. Errors: none of its own.
create or replace function maestro.grow_reservations(p_runs maestro.run_report [], p_procs text []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_hosts text [];
    v_idle bigint [];
begin
    select array_agg(k.pk_host), array_agg(k.int_mem_idle) into v_hosts, v_idle
    from (
        select h.pk_host, h.int_mem_idle
        from host as h
        where h.pk_host in (
            select p.pk_host
            from unnest(p_runs) as r join proc as p on p.pk_proc = r.pk_proc
            where p.pk_proc = any(p_procs) and r.rss > p.int_mem_reserved
        )
        order by h.pk_host
        for no key update skip locked
    ) as k;
    if v_hosts is null then
        return;
    end if;

    update proc as p set int_mem_reserved = p.int_mem_reserved + g.growth
    from (
        select n.pk_proc, least(n.need, n.idle - n.before) as growth
        from (
            select
                q.pk_proc, r.rss - q.int_mem_reserved as need, i.idle,
                sum(r.rss - q.int_mem_reserved) over (partition by q.pk_host order by q.pk_proc)
                - (r.rss - q.int_mem_reserved) as before
            from unnest(p_runs) as r
            join proc as q on q.pk_proc = r.pk_proc
            join unnest(v_hosts, v_idle) as i (pk_host, idle) on i.pk_host = q.pk_host
            where q.pk_proc = any(p_procs) and r.rss > q.int_mem_reserved
        ) as n
    ) as g
    where p.pk_proc = g.pk_proc and g.growth > 0;
end
$$;
comment on function maestro.grow_reservations(maestro.run_report [], text []) is
    'Raises proc.int_mem_reserved (KiB) to the reported use, never beyond the host''s idle memory.';
