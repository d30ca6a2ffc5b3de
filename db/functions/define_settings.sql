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
        ('locality_enabled', '', 'true', 'boolean', null, null, null,
            'Prefer hosts that run the layer now, or ran it a short while ago.'),
        ('locality_bonus', '', '8', 'number', 0, 1000, null,
            'What the score of a host falls by when it runs the layer now; it never overrides fit or reservations.'),
        ('locality_window_frames', 'frames', '64', 'integer', 0, 100000, null,
            'Frames of other work after which a host that a layer left is cold for it; 0: no pull to hosts it left.'),
        ('host_limit_seat_bonus', '', '16', 'number', 0, 1000, null,
            'What the score of a host falls by for each limit of type HOST in which it holds a seat already.'),
        ('layer_host_max_frac', '', '0.25', 'number', 0, 1, null,
            'Soft cap: the part of a host''s cores that frames of one layer may take, 8 frames at least; it yields when '
            'nothing else would use the host. 0 is no cap.'),
        ('fair_share', '', 'true', 'boolean', null, null, null,
            'Weigh layers by how far their show is below its share of the allocation, not by priority alone.'),
        ('fifo', '', 'false', 'boolean', null, null, null,
            'Serve the jobs of every show strictly by priority, then in the order of their start.'),
        ('fifo_shows', 'show names', '', 'text', null, null, null,
            'Shows, separated by commas, whose jobs are served strictly by priority, then in the order of their start.'),
        ('selfish_services', 'service names', '', 'text', null, null, null,
            'Services, separated by commas, whose frames take every idle core of their host.'),
        ('reservations_enabled', '', 'true', 'boolean', null, null, null,
            'Hold hosts for layers too wide to fit while small frames stream by; false: placement alone.'),
        ('reservation_block_seconds', 's', '300', 'integer', 0, 86400, null,
            'Net blocked time after which a wide layer may have hosts held for it.'),
        ('reservation_max_fraction', '', '0.5', 'number', 0, 1, null,
            'The part of the hosts that fit a layer which reservations may hold.'),
        ('reservation_max_grantees', 'layers', '8', 'integer', 0, 10000, null,
            'Layers that may have hosts held for them at once.'),
        ('backfill_enabled', '', 'true', 'boolean', null, null, null,
            'Let frames that end in time borrow idle cores of held hosts.'),
        ('memory_sizing', '', 'true', 'boolean', null, null, null,
            'Size threadable layers by the memory that their frames were seen to use.'),
        ('mem_per_core', 'KiB', '0', 'integer', 0, 1073741824, null,
            'Memory that counts as one core''s in sizing; 0: that of the host group itself.'),
        ('plan_zero_warn_ticks', 'ticks', '40', 'integer', 0, 100000, null,
            'A layer that is planned in this many ticks in a row and booked in none is named in a warning; 0: never.'),
        ('host_min_free_mem', 'KiB', '524288', 'integer', 0, 1073741824, null,
            'A host that reports less free memory than this gets no booking until it reports more; 0: never mind.'),
        ('limit_settle_window_seconds', 's', '120', 'integer', 0, 86400, null,
            'A frame that started this long before a limit''s usage report may not be counted in it yet.'),
        ('limit_min_report_interval_seconds', 's', '5', 'integer', 0, 3600, null,
            'A usage report of a limit that follows the one before sooner than this is skipped.'),
        ('stat_interval_seconds', 's', '300', 'integer', 1, 86400, null, 'The window of the stat line.'),
        ('launch_pool_size', 'threads', '8', 'integer', 1, 10000, null,
            'No effect: launchers send all claimed launches at once. Kept for lists of properties from OpenCue.'),
        ('launch_queue_size', 'rows', '16384', 'integer', 1, 10000000, null,
            'No effect: launches wait in a table; launch_backlog_max bounds it. Kept for lists of properties.'),
        ('read_pool_size', 'threads', '8', 'integer', 1, 10000, null,
            'No effect: the plan is read in one query. Kept for lists of properties.'),
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
