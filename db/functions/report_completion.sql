-- report_completion: takes FrameCompleteReports (an object or an array, protobuf's JSON form) into the inbox.
-- Called by the launchers' intake, or by hand. One INSERT, no lock on any table of OpenCue, so it never waits for a
-- tick; once it has committed, RQD may be told that the report has arrived.
-- A completion is not refused for a frame or proc that nobody knows: the drain finds it stale. Result: {"accepted": n}.
-- Errors, and then nothing of the call is stored: QM001 a report that cannot be right (no frame, no resource id, a
-- negative size), QM002 a host that nobody knows.
create or replace function maestro.report_completion(
    p_report jsonb, p_now timestamptz default now()
) returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_list constant jsonb := maestro.report_list(p_report, 'completion');
    v_stranger text;
    v_accepted integer;
begin
    -- Typed, which is quick; what this stumbles over is read once more, for a message that names the field.
    begin
        with added as (
            insert into maestro.completion (
                received_at, pk_proc, pk_frame, host_name, exit_status, exit_signal, run_time_seconds, max_rss_kib,
                max_gpu_mem_kib, llu_at, nimby_locked, host_free_mem_kib
            )
            select
                p_now, nullif(left(coalesce(f.resource_id, f."resourceId"), 65), ''),
                nullif(left(coalesce(f.frame_id, f."frameId"), 65), ''),
                maestro.report_host_name(b.host, 'completion'),
                coalesce(b.exit_status, b."exitStatus", 0), coalesce(b.exit_signal, b."exitSignal", 0),
                coalesce(b.run_time, b."runTime", 0), coalesce(f.max_rss, f."maxRss", 0),
                coalesce(f.max_used_gpu_memory, f."maxUsedGpuMemory", 0),
                to_timestamp(nullif(coalesce(f.llu_time, f."lluTime", 0), 0)),
                coalesce(h.nimby_locked, h."nimbyLocked", false), coalesce(h.free_mem, h."freeMem", 0)
            from jsonb_to_recordset(v_list) as b (
                host jsonb, frame jsonb, exit_status integer, "exitStatus" integer, exit_signal integer,
                "exitSignal" integer, run_time bigint, "runTime" bigint
            )
            cross join lateral jsonb_to_record(case jsonb_typeof(b.frame) when 'object' then b.frame else '{}' end) as f (
                resource_id text, "resourceId" text, frame_id text, "frameId" text, max_rss bigint, "maxRss" bigint,
                max_used_gpu_memory bigint, "maxUsedGpuMemory" bigint, llu_time bigint, "lluTime" bigint
            )
            cross join lateral jsonb_to_record(case jsonb_typeof(b.host) when 'object' then b.host else '{}' end) as h (
                nimby_locked boolean, "nimbyLocked" boolean, free_mem bigint, "freeMem" bigint
            )
            returning host_name
        )
        select
            count(*),
            min(a.host_name) filter (where not exists (select from host as h where h.str_name = a.host_name))
        into v_accepted, v_stranger
        from added as a;
    exception when data_exception or not_null_violation or check_violation then
        perform
            maestro.check_fields(k.frame, k.place, '{resource_id,resourceId}', '{}'),
            maestro.check_fields(
                k.frame, k.place, '{frame_id,frameId}',
                '{max_rss,maxRss,max_used_gpu_memory,maxUsedGpuMemory,llu_time,lluTime}'
            ),
            maestro.check_fields(k.host, k.place, null, '{free_mem,freeMem}'),
            maestro.check_fields(k.body, k.place, null, '{run_time,runTime}'),
            maestro.check_fields(k.body, k.place, null, '{exit_status,exitStatus,exit_signal,exitSignal}', -2147483648),
            maestro.report_flag(coalesce(k.host ->> 'nimby_locked', k.host ->> 'nimbyLocked'), 'nimby_locked', k.place)
        from (
            select
                e as body, e -> 'host' as host, e -> 'frame' as frame,
                'completion from host ' || maestro.report_host_name(e -> 'host', 'completion') as place
            from jsonb_array_elements(v_list) as e
        ) as k;
        raise exception using
            errcode = 'QM001', message = 'completion that cannot be read',
            hint = 'Allowed: FrameCompleteReport in protobuf''s JSON form.';
    end;

    if v_stranger is not null then
        raise exception using
            errcode = 'QM002',
            message = format('completion from host %s, which nobody knows', v_stranger),
            hint = 'A host makes itself known by report_startup or report_status.';
    end if;
    return jsonb_build_object('accepted', v_accepted);
end
$$;
comment on function maestro.report_completion(jsonb, timestamp with time zone) is
    'Stores FrameCompleteReports (object or array; snake_case or camelCase; int64 as strings) for the next tick: '
    '{"accepted": n}. QM001 for a report that cannot be right, QM002 for an unknown host; then nothing is stored.';
