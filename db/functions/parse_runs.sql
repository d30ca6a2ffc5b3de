-- parse_runs: the running frames of one HostReport, checked. Called by report_status.
-- The quick way reads them typed; what that stumbles over is read once more number by number, for a message that names
-- the field. Raises QM001 for a frame without an id, a negative amount or what is no number.
create or replace function maestro.parse_runs(p_host_name text, p_frames jsonb) returns maestro.run_report []
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_runs maestro.run_report [];
    v_sound boolean;
begin
    if jsonb_typeof(p_frames) is distinct from 'array' or jsonb_array_length(p_frames) = 0 then
        return null;
    end if;
    begin
        select
            array_agg(row(
                p_host_name, r.pk_proc, r.pk_frame, to_timestamp(nullif(r.start_time, 0) / 1000.0),
                to_timestamp(nullif(r.llu_time, 0)), r.rss, r.max_rss, r.vsize, r.max_vsize, r.pss, r.max_pss, r.swap,
                r.gpu_mem, r.max_gpu_mem
            )::maestro.run_report),
            bool_and(
                length(r.pk_frame) between 1 and 64 and length(r.pk_proc) <= 64
                and least(
                    r.start_time, r.llu_time, r.rss, r.max_rss, r.vsize, r.max_vsize, r.pss, r.max_pss, r.swap,
                    r.gpu_mem, r.max_gpu_mem
                ) >= 0
                and greatest(
                    r.start_time, r.llu_time * 1000, r.rss, r.max_rss, r.vsize, r.max_vsize, r.pss, r.max_pss, r.swap,
                    r.gpu_mem, r.max_gpu_mem
                ) <= 1000000000000000
            )
        into v_runs, v_sound
        from (
            select
                coalesce(x.frame_id, x."frameId", '') as pk_frame,
                coalesce(x.resource_id, x."resourceId", '') as pk_proc,
                coalesce(x.start_time, x."startTime", 0) as start_time,
                coalesce(x.llu_time, x."lluTime", 0) as llu_time,
                coalesce(x.rss, 0) as rss,
                coalesce(x.max_rss, x."maxRss", 0) as max_rss,
                coalesce(x.vsize, 0) as vsize,
                coalesce(x.max_vsize, x."maxVsize", 0) as max_vsize,
                coalesce(x.pss, 0) as pss,
                coalesce(x.max_pss, x."maxPss", 0) as max_pss,
                coalesce(x.used_swap_memory, x."usedSwapMemory", 0) as swap,
                coalesce(x.used_gpu_memory, x."usedGpuMemory", 0) as gpu_mem,
                coalesce(x.max_used_gpu_memory, x."maxUsedGpuMemory", 0) as max_gpu_mem
            from jsonb_to_recordset(p_frames) as x (
                frame_id text, "frameId" text, resource_id text, "resourceId" text, start_time bigint,
                "startTime" bigint, llu_time bigint, "lluTime" bigint, rss bigint, max_rss bigint, "maxRss" bigint,
                vsize bigint, max_vsize bigint, "maxVsize" bigint, pss bigint, max_pss bigint, "maxPss" bigint,
                used_swap_memory bigint, "usedSwapMemory" bigint, used_gpu_memory bigint, "usedGpuMemory" bigint,
                max_used_gpu_memory bigint, "maxUsedGpuMemory" bigint
            )
        ) as r;
    exception when data_exception then
        v_sound := false;
    end;
    if not v_sound then
        perform maestro.check_fields(
            f, 'report of host ' || p_host_name,
            '{frame_id,frameId}', '{start_time,startTime,llu_time,lluTime,rss,max_rss,maxRss,vsize,max_vsize,maxVsize,'
            'pss,max_pss,maxPss,used_swap_memory,usedSwapMemory,used_gpu_memory,usedGpuMemory,max_used_gpu_memory,'
            'maxUsedGpuMemory}'
        )
        from jsonb_array_elements(p_frames) as f;
        raise exception using
            errcode = 'QM001',
            message = format('report of host %s: its running frames cannot be read', p_host_name),
            hint = 'Allowed: RunningFrameInfo in protobuf''s JSON form.';
    end if;
    return v_runs;
end
$$;
comment on function maestro.parse_runs(text, jsonb) is
    'RunningFrameInfo messages in protobuf''s JSON form as maestro.run_report (KiB), null if there are none; QM001 for '
    'what cannot be right.';
