-- parse_host: the RenderHost of a report, checked and in the tables' units.
-- Called by report_startup and report_status. Keys may be snake_case or camelCase; what is absent is protobuf's
-- default (0, false, UP). Raises QM001 for a missing name, a negative amount or an unknown state.
create or replace function maestro.parse_host(p_host jsonb, p_what text) returns maestro.host_report
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v maestro.host_report;
    w text;
    v_per_proc bigint;
    v_states constant text [] := '{UP,DOWN,REBOOTING,REBOOT_WHEN_IDLE,REPAIR}';
begin
    v.name := maestro.report_host_name(p_host, p_what);
    w := format('%s of host %s', p_what, v.name);
    v.fqdn := left(trim(p_host ->> 'name'), 128);
    v.facility := p_host ->> 'facility';
    v.nimby_enabled := maestro.report_flag(
        coalesce(p_host ->> 'nimby_enabled', p_host ->> 'nimbyEnabled'), 'nimby_enabled', w
    );
    v.nimby_locked := maestro.report_flag(
        coalesce(p_host ->> 'nimby_locked', p_host ->> 'nimbyLocked'), 'nimby_locked', w
    );
    v.num_procs := maestro.report_number(
        coalesce(p_host ->> 'num_procs', p_host ->> 'numProcs'), 'num_procs', w, 0, 1000000
    );
    -- RQD's cores_per_proc is in core points already.
    v_per_proc := maestro.report_number(
        coalesce(p_host ->> 'cores_per_proc', p_host ->> 'coresPerProc'), 'cores_per_proc', w, 0, 1000000
    );
    v.cores := v.num_procs * v_per_proc;
    v.total_mem := maestro.report_number(coalesce(p_host ->> 'total_mem', p_host ->> 'totalMem'), 'total_mem', w);
    v.free_mem := maestro.report_number(coalesce(p_host ->> 'free_mem', p_host ->> 'freeMem'), 'free_mem', w);
    v.total_swap := maestro.report_number(coalesce(p_host ->> 'total_swap', p_host ->> 'totalSwap'), 'total_swap', w);
    v.free_swap := maestro.report_number(coalesce(p_host ->> 'free_swap', p_host ->> 'freeSwap'), 'free_swap', w);
    v.total_mcp := maestro.report_number(coalesce(p_host ->> 'total_mcp', p_host ->> 'totalMcp'), 'total_mcp', w);
    v.free_mcp := maestro.report_number(coalesce(p_host ->> 'free_mcp', p_host ->> 'freeMcp'), 'free_mcp', w);
    v.load := maestro.report_number(p_host ->> 'load', 'load', w);
    v.booted_at := to_timestamp(nullif(maestro.report_number(
        coalesce(p_host ->> 'boot_time', p_host ->> 'bootTime'), 'boot_time', w, 0, 100000000000
    ), 0));
    v.gpus := maestro.report_number(coalesce(p_host ->> 'num_gpus', p_host ->> 'numGpus'), 'num_gpus', w, 0, 1000000);
    v.total_gpu_mem := maestro.report_number(
        coalesce(p_host ->> 'total_gpu_mem', p_host ->> 'totalGpuMem'), 'total_gpu_mem', w
    );
    v.free_gpu_mem := maestro.report_number(
        coalesce(p_host ->> 'free_gpu_mem', p_host ->> 'freeGpuMem'), 'free_gpu_mem', w
    );
    v.tags := case jsonb_typeof(p_host -> 'tags')
        when 'array' then array(select t from jsonb_array_elements_text(p_host -> 'tags') as t)
        else '{}'
    end;
    v.os := coalesce(nullif(left(p_host #>> '{attributes,SP_OS}', 32), ''), 'rhel40');
    -- The enumeration comes as a name, or as its number.
    v.state := coalesce(p_host ->> 'state', 'UP');
    if v.state ~ '^[0-4]$' then
        v.state := v_states[v.state::integer + 1];
    end if;
    if v.state <> all(v_states) then
        raise exception using
            errcode = 'QM001',
            message = format('%s: state cannot be %L', w, left(v.state, 40)),
            hint = format('Allowed: %s.', array_to_string(v_states, ', '));
    end if;
    return v;
end
$$;
comment on function maestro.parse_host(jsonb, text) is
    'A RenderHost in protobuf''s JSON form as maestro.host_report (core points, KiB); QM001 for what cannot be right.';
