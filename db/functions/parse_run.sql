-- parse_run: one running frame of a HostReport, checked. Raises QM001 for a frame without an id or a negative amount.
create or replace function maestro.parse_run(p_host_name text, p_frame jsonb) returns maestro.run_report
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v maestro.run_report;
    w constant text := 'report of host ' || p_host_name;
begin
    v.host_name := p_host_name;
    v.pk_frame := maestro.report_text(
        coalesce(p_frame ->> 'frame_id', p_frame ->> 'frameId'), 'frame_id of a running frame', w
    );
    v.pk_proc := left(coalesce(p_frame ->> 'resource_id', p_frame ->> 'resourceId', ''), 64);
    -- Epoch milliseconds, but seconds for the log's time.
    v.started_at := to_timestamp(nullif(maestro.report_number(
        coalesce(p_frame ->> 'start_time', p_frame ->> 'startTime'), 'start_time', w, 0, 100000000000000
    ), 0) / 1000.0);
    v.llu_at := to_timestamp(nullif(maestro.report_number(
        coalesce(p_frame ->> 'llu_time', p_frame ->> 'lluTime'), 'llu_time', w, 0, 100000000000
    ), 0));
    v.rss := maestro.report_number(p_frame ->> 'rss', 'rss', w);
    v.max_rss := maestro.report_number(coalesce(p_frame ->> 'max_rss', p_frame ->> 'maxRss'), 'max_rss', w);
    v.vsize := maestro.report_number(p_frame ->> 'vsize', 'vsize', w);
    v.max_vsize := maestro.report_number(coalesce(p_frame ->> 'max_vsize', p_frame ->> 'maxVsize'), 'max_vsize', w);
    v.pss := maestro.report_number(p_frame ->> 'pss', 'pss', w);
    v.max_pss := maestro.report_number(coalesce(p_frame ->> 'max_pss', p_frame ->> 'maxPss'), 'max_pss', w);
    v.swap := maestro.report_number(
        coalesce(p_frame ->> 'used_swap_memory', p_frame ->> 'usedSwapMemory'), 'used_swap_memory', w
    );
    v.gpu_mem := maestro.report_number(
        coalesce(p_frame ->> 'used_gpu_memory', p_frame ->> 'usedGpuMemory'), 'used_gpu_memory', w
    );
    v.max_gpu_mem := maestro.report_number(
        coalesce(p_frame ->> 'max_used_gpu_memory', p_frame ->> 'maxUsedGpuMemory'), 'max_used_gpu_memory', w
    );
    return v;
end
$$;
comment on function maestro.parse_run(text, jsonb) is
    'A RunningFrameInfo in protobuf''s JSON form as maestro.run_report (KiB); QM001 for what cannot be right.';
