-- grow_reservations: a proc that uses more memory than it reserved reserves what it uses, as far as its host has it.
-- Called by report_status for runs whose procs it has locked. The trigger on proc takes the growth off the host's idle
-- memory. The host row is locked first, so that its idle memory cannot fall meanwhile; several procs of one host share
-- it in key order, each as much as is left. What a host lacks now the next report asks for again.
-- Locks: host rows sorted by key, skip locked. Errors: none of its own.
create or replace function maestro.grow_reservations(p_runs maestro.run_report []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_hosts text [];
    v_procs text [];
    v_needs bigint [];
begin
    select array_agg(p.pk_proc), array_agg(r.rss - p.int_mem_reserved), array_agg(distinct p.pk_host)
    into v_procs, v_needs, v_hosts
    from unnest(p_runs) as r join proc as p on p.pk_proc = r.pk_proc
    where r.rss > p.int_mem_reserved;
    if v_procs is null then
        return;
    end if;

    with held as materialized (
        select h.pk_host, h.int_mem_idle
        from host as h where h.pk_host = any(v_hosts)
        order by h.pk_host
        for no key update skip locked
    ),
    wanted as (
        select
            p.pk_proc, n.need, h.int_mem_idle as idle,
            sum(n.need) over (partition by p.pk_host order by p.pk_proc) - n.need as before
        from unnest(v_procs, v_needs) as n (pk_proc, need)
        join proc as p on p.pk_proc = n.pk_proc
        join held as h on h.pk_host = p.pk_host
    )
    update proc as p set int_mem_reserved = p.int_mem_reserved + least(w.need, w.idle - w.before)
    from wanted as w
    where p.pk_proc = w.pk_proc and w.idle > w.before;
end
$$;
comment on function maestro.grow_reservations(maestro.run_report []) is
    'Raises proc.int_mem_reserved (KiB) to the reported use, never beyond the host''s idle memory.';
