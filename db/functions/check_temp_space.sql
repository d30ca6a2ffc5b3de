-- check_temp_space: hosts whose temporary disk is full go to REPAIR, and come back when it no longer is.
-- Called by save_hosts for the hosts whose host_stat rows it has locked. A comment on the host says why, as OpenCue
-- does; it also tells a host that we sent to REPAIR from one that a person did: only the former comes back by itself.
--
-- min_available_temp_storage_percentage below 0 switches it off; hosts that report no temporary disk, and Windows
-- hosts, are left alone. Locks: comments of these hosts. Errors: none of its own.
create or replace function maestro.check_temp_space(p_hosts maestro.host_report [], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    v_percent constant numeric := maestro.setting('min_available_temp_storage_percentage')::numeric;
    v_subject constant text := 'Temporary disk space is short';
begin
    with full_disk as (
        update host_stat as s set str_state = 'REPAIR'
        from unnest(p_hosts) as r
        join host as h on h.str_name = r.name
        where s.pk_host = h.pk_host and s.str_state = 'UP' and v_percent >= 0
            and r.total_mcp > 0 and r.free_mcp * 100 < v_percent * r.total_mcp and lower(r.os) <> 'windows'
        returning s.pk_host, r.free_mcp, r.total_mcp
    )
    insert into comments (pk_comment, pk_host, ts_created, str_user, str_subject, str_message)
    select
        gen_random_uuid()::text, f.pk_host, p_now, 'maestro', v_subject,
        format(
            '%s of %s MiB are free: in REPAIR until %s %% are.', f.free_mcp / 1024, f.total_mcp / 1024, v_percent
        )
    from full_disk as f;

    if exists (select from comments where str_user = 'maestro' and str_subject = v_subject) then
        with gone as (
            delete from comments as c
            using unnest(p_hosts) as r
            join host as h on h.str_name = r.name
            where c.pk_host = h.pk_host and c.str_user = 'maestro' and c.str_subject = v_subject
                and (v_percent < 0 or r.free_mcp * 100 >= v_percent * r.total_mcp)
            returning c.pk_host
        )
        update host_stat as s set str_state = 'UP'
        where s.pk_host in (select g.pk_host from gone as g) and s.str_state = 'REPAIR';
    end if;
end
$$;
comment on function maestro.check_temp_space(maestro.host_report [], timestamp with time zone) is
    'Sets hosts to REPAIR whose temporary disk is fuller than min_available_temp_storage_percentage allows, and back to '
    'UP those it had set.';
