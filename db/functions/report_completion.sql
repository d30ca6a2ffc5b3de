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
    v_stranger text;
    v_accepted integer;
begin
    with added as (
        insert into maestro.completion (
            received_at, pk_proc, pk_frame, host_name, exit_status, exit_signal, run_time_seconds, max_rss_kib,
            max_gpu_mem_kib, llu_at, nimby_locked, host_free_mem_kib
        )
        select
            p_now,
            maestro.report_text(coalesce(r.frame ->> 'resource_id', r.frame ->> 'resourceId'), 'frame.resource_id', w),
            maestro.report_text(coalesce(r.frame ->> 'frame_id', r.frame ->> 'frameId'), 'frame.frame_id', w),
            r.name,
            maestro.report_number(
                coalesce(r.body ->> 'exit_status', r.body ->> 'exitStatus'), 'exit_status', w, -2147483648, 2147483647
            ),
            maestro.report_number(
                coalesce(r.body ->> 'exit_signal', r.body ->> 'exitSignal'), 'exit_signal', w, -2147483648, 2147483647
            ),
            maestro.report_number(coalesce(r.body ->> 'run_time', r.body ->> 'runTime'), 'run_time', w),
            maestro.report_number(coalesce(r.frame ->> 'max_rss', r.frame ->> 'maxRss'), 'frame.max_rss', w),
            maestro.report_number(
                coalesce(r.frame ->> 'max_used_gpu_memory', r.frame ->> 'maxUsedGpuMemory'),
                'frame.max_used_gpu_memory', w
            ),
            to_timestamp(nullif(maestro.report_number(
                coalesce(r.frame ->> 'llu_time', r.frame ->> 'lluTime'), 'frame.llu_time', w, 0, 100000000000
            ), 0)),
            maestro.report_flag(
                coalesce(r.host ->> 'nimby_locked', r.host ->> 'nimbyLocked'), 'host.nimby_locked', w
            ),
            maestro.report_number(coalesce(r.host ->> 'free_mem', r.host ->> 'freeMem'), 'host.free_mem', w)
        from (
            select
                e as body, e -> 'host' as host, e -> 'frame' as frame,
                maestro.report_host_name(e -> 'host', 'completion') as name
            from jsonb_array_elements(maestro.report_list(p_report, 'completion')) as e
        ) as r
        cross join lateral (select 'completion from host ' || r.name) as c (w)
        returning host_name
    )
    select
        count(*),
        min(a.host_name) filter (where not exists (select from host as h where h.str_name = a.host_name))
    into v_accepted, v_stranger
    from added as a;

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
