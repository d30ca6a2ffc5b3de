-- depends: 0002_triggers
--
-- What a farm needs before its first job: a facility, an allocation, a department, a show with room to run, and the
-- defaults of the usual services. Keys are fixed, so that every installation has the same.

insert into facility (pk_facility, str_name, b_default)
values ('00000000-0000-0000-0000-0000000000f1', 'local', true);

insert into alloc (pk_alloc, str_name, b_allow_edit, b_default, str_tag, pk_facility)
values ('00000000-0000-0000-0000-0000000000a1', 'local.general', false, true, 'general',
        '00000000-0000-0000-0000-0000000000f1');

insert into dept (pk_dept, str_name, b_default)
values ('00000000-0000-0000-0000-0000000000d1', 'unknown', true);

insert into show (pk_show, str_name)
values ('00000000-0000-0000-0000-000000000051', 'demo');

insert into show_stats (pk_show)
values ('00000000-0000-0000-0000-000000000051');

-- The root folder bears the show's name; its folder_level and folder_resource rows come by trigger.
insert into folder (pk_folder, pk_show, str_name, pk_dept)
values ('00000000-0000-0000-0000-0000000000e1', '00000000-0000-0000-0000-000000000051', 'demo',
        '00000000-0000-0000-0000-0000000000d1');

insert into point (pk_point, pk_dept, pk_show)
values ('00000000-0000-0000-0000-0000000000b1', '00000000-0000-0000-0000-0000000000d1',
        '00000000-0000-0000-0000-000000000051');

-- A million cores: more than the farms this is meant for.
insert into subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)
values ('00000000-0000-0000-0000-0000000000c1', '00000000-0000-0000-0000-0000000000a1',
        '00000000-0000-0000-0000-000000000051', 100000000, 100000000);

-- Core points and KiB. 3355443 is 3.2 GiB, OpenCue's memory for a frame about which nothing is known.
insert into service (pk_service, str_name, b_threadable, int_cores_min, int_mem_min, str_tags)
values
    ('00000000-0000-0000-0000-000000000001', 'default', false, 100, 3355443, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000002', 'prman', true, 100, 3355443, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000003', 'arnold', true, 100, 3355443, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000004', 'maya', false, 100, 2097152, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000005', 'houdini', true, 100, 3355443, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000006', 'nuke', true, 100, 2097152, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000007', 'blender', true, 100, 3355443, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000008', 'shell', false, 100, 524288, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000009', 'preprocess', false, 100, 393216, 'general | desktop'),
    ('00000000-0000-0000-0000-000000000010', 'postprocess', false, 100, 524288, 'general | desktop');

-- The most retries a job may ask for.
insert into config (pk_config, str_key, int_value)
values ('00000000-0000-0000-0000-0000000000cf', 'MAX_FRAME_RETRIES', 16);
