-- define_settings: (re)writes every setting's unit, default, range and text; values that were set are kept.
-- Called by the installer after each replay of the functions.
create or replace function maestro.define_settings() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    create or replace trigger setting_check before insert or update on maestro.setting
        for each row execute function maestro.setting_check();

    insert into maestro.setting (name, value, unit, default_value, kind, min_value, max_value, choices, description)
    select d.name, d.default_value, d.unit, d.default_value, d.kind, d.min_value, d.max_value, d.choices, d.description
    from (values
        ('mode', '', 'off', 'choice', null, null, '{off,managed,facility}'::text [],
            'off: no ticks; managed: only shows with b_scheduler_managed; facility: every show.'),
        ('tick_budget_ms', 'ms', '5000', 'integer', 10, 600000, null,
            'Past this time a tick stops placing, commits what it has and says so.'),
        ('completions_per_tick_max', 'rows', '5000', 'integer', 1, 100000, null,
            'How many completions one drain applies; the rest waits for the next tick.'),
        ('launch_backlog_max', 'rows', '100000', 'integer', 1, 10000000, null,
            'With more unconfirmed launches than this the tick plans nothing, until launchers catch up.'),
        ('layer_candidates_per_group_max', 'layers', '2000', 'integer', 1, 1000000, null,
            'Candidate layers that a host group weighs per tick, drawn by the lottery.'),
        ('job_frame_dispatch_max', 'frames', '0', 'integer', 0, 1000000, null,
            'Frames of one job booked onto one host per tick; 0 is no cap.'),
        ('host_frame_dispatch_max', 'frames', '0', 'integer', 0, 1000000, null,
            'Frames booked onto one host per tick; 0 is no cap.'),
        ('score_weight_cores', '', '1', 'number', 0, 1000, null, 'Weight of cores in the placement score.'),
        ('score_weight_mem', '', '1', 'number', 0, 1000, null, 'Weight of memory in the placement score.'),
        ('score_weight_gpus', '', '4', 'number', 0, 1000, null, 'Weight of gpus in the placement score.'),
        ('score_weight_gpu_mem', '', '1', 'number', 0, 1000, null, 'Weight of gpu memory in the placement score.'),
        ('host_down_seconds', 's', '300', 'integer', 10, 86400, null,
            'A host that did not report for this long is DOWN and its procs are released.'),
        ('orphan_seconds', 's', '300', 'integer', 10, 86400, null,
            'A proc that no report confirmed for this long is released.'),
        ('frame_verification_grace_seconds', 's', '120', 'integer', 0, 86400, null,
            'A frame that RQD runs without a booking is killed once it has run this long.'),
        ('depend_satisfy_only_on_frame_success', '', 'true', 'boolean', null, null, null,
            'true: an eaten frame does not release depends on that very frame; it always counts as done in its layer.'),
        ('launch_claim_seconds', 's', '15', 'integer', 1, 3600, null,
            'A claimed launch whose launcher fell silent may be claimed by another after this time.'),
        ('launch_confirm_seconds', 's', '20', 'integer', 1, 3600, null,
            'How long a host is asked about a launch whose answer was lost before the booking is dropped.'),
        ('oom_layer_escalate_threshold', 'frames', '3', 'integer', 1, 1000, null,
            'So many different frames of a layer fail for memory before the layer asks for more, and not they alone.'),
        ('frame_memory_hours', 'h', '6', 'integer', 1, 8760, null,
            'How long a frame that failed for memory asks for more than its layer.'),
        ('oom_max_safe_used_physical_memory_threshold', 'share', '0.9', 'number', 0, 1, null,
            'A host that uses more of its memory than this, and more swap than is safe, is saved by killing frames.'),
        ('oom_max_safe_used_swap_memory_threshold', 'share', '0.05', 'number', 0, 1, null,
            'Share of a host''s swap that may be in use while its memory is short.'),
        ('oom_frame_overboard_allowed_threshold', 'share', '-1', 'number', -1, 100, null,
            'A frame that uses this share more than is reserved for it is killed as a memory failure; below 0 never.'),
        ('host_leak_mb', 'MiB', '0', 'integer', 0, 100000000, null,
            'A host that misses more memory than this beyond what its frames use, report after report, is drained; '
            '0 never.'),
        ('min_available_temp_storage_percentage', '%', '5', 'number', -1, 100, null,
            'A host with less temporary disk space free goes to REPAIR until it has it again; -1 never.'),
        ('history_hours', 'h', '24', 'integer', 1, 8760, null,
            'How long ticks, placements, refused launches and faults are kept.'),
        ('log_root', 'path', '/var/lib/maestro/logs', 'text', null, null, null,
            'Directory under which each job gets its log directory; hosts must see it.')
    ) as d (name, unit, default_value, kind, min_value, max_value, choices, description)
    on conflict (name) do update set
        unit = excluded.unit,
        default_value = excluded.default_value,
        kind = excluded.kind,
        min_value = excluded.min_value,
        max_value = excluded.max_value,
        choices = excluded.choices,
        description = excluded.description;
end
$$;
comment on function maestro.define_settings() is
    'Defines every setting (unit, default, range, text) and keeps the values that were set.';
