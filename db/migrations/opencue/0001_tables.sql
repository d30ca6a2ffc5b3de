-- The OpenCue tables that scheduling, submitting and reporting need, for the standalone way. Names, types, defaults
-- and constraints are OpenCue's (schema V51), so that SQL written for one farm reads the same on the other.
--
-- Units: cores are core points (100 = 1 core), memory is KiB in every column, gpus are whole devices, int_ts_* are
-- epoch seconds. A maximum of -1 in folder tables is no limit.
--
-- Secondary indexes are our own choice: only what a query named beside it needs, because a change of str_state writes
-- every index of frame. No counter is indexed, so that the hot counter rows stay HOT-updatable.
--
-- Fill factors: frame 70, so that the new version of a row lands on the page of the old one (str_state is in a partial
-- index, so the update is never HOT, but one page is dirtied instead of two). Counter rows and hosts 50: they are
-- updated each tick, HOT, and a page that can hold every row twice needs no vacuum in between. proc 80: usage updates.

-- Places and money: who may run where

create table facility (
    pk_facility varchar(36) not null,
    str_name    varchar(36) not null,
    b_default   boolean not null default false,
    constraint c_facility_pk primary key (pk_facility)
);
comment on table facility is 'a site; jobs run on allocations of their own facility';

create table dept (
    pk_dept   varchar(36) not null,
    str_name  varchar(36) not null,
    b_default boolean not null default false,
    constraint c_dept_pk primary key (pk_dept)
);
comment on table dept is 'department; a job belongs to the one of its folder';

create table alloc (
    pk_alloc     varchar(36) not null,
    str_name     varchar(36) not null,
    b_allow_edit boolean not null default true,
    b_default    boolean not null default false,
    str_tag      varchar(24),
    b_billable   boolean not null default true,
    pk_facility  varchar(36) not null,
    b_enabled    boolean default true,
    constraint c_alloc_pk primary key (pk_alloc),
    constraint c_alloc_name_uniq unique (str_name),
    constraint c_alloc_pk_facility foreign key (pk_facility) references facility (pk_facility)
);
comment on table alloc is 'allocation: a named pool of hosts with one tag';

create table show (
    pk_show               varchar(36) not null,
    str_name              varchar(512) not null,
    b_paused              boolean not null default false,
    int_default_min_cores integer not null default 100,
    int_default_max_cores integer not null default 10000,
    b_booking_enabled     boolean not null default true,
    b_dispatch_enabled    boolean not null default true,
    b_active              boolean not null default true,
    str_comment_email     varchar(1024),
    int_default_min_gpus  integer not null default 100,
    int_default_max_gpus  integer not null default 100000,
    b_scheduler_managed   boolean not null default false,
    constraint c_show_pk primary key (pk_show)
);
comment on table show is 'a production; owns folders, jobs and subscriptions';

create table show_alias (
    pk_show_alias varchar(36) not null,
    pk_show       varchar(36) not null,
    str_name      varchar(16) not null,
    constraint c_show_alias_pk primary key (pk_show_alias),
    constraint c_show_alias_pk_show foreign key (pk_show) references show (pk_show)
);
comment on table show_alias is 'other names by which submissions may call a show';

create table show_stats (
    pk_show                 varchar(36) not null,
    int_frame_insert_count  bigint not null default 0,
    int_job_insert_count    bigint not null default 0,
    int_frame_success_count bigint not null default 0,
    int_frame_fail_count    bigint not null default 0,
    constraint c_show_stats_pk primary key (pk_show)
);
comment on table show_stats is 'lifetime counters of a show';

create table subscription (
    pk_subscription varchar(36) not null,
    pk_alloc        varchar(36) not null,
    pk_show         varchar(36) not null,
    int_size        bigint not null default 0,
    int_burst       bigint not null default 0,
    int_cores       integer not null default 0,
    float_tier      numeric(16,2) not null default 0,
    int_gpus        integer not null default 0,
    constraint c_subscription_pk primary key (pk_subscription),
    constraint c_subscription_uk unique (pk_show, pk_alloc),
    constraint c_subscription_pk_alloc foreign key (pk_alloc) references alloc (pk_alloc),
    constraint c_subscription_pk_show foreign key (pk_show) references show (pk_show)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table subscription is
    'how much of an allocation a show may use, in core points; int_burst is the hard cap, 0 freezes';

create table point (
    pk_point      varchar(36) not null,
    pk_dept       varchar(36) not null,
    pk_show       varchar(36) not null,
    str_ti_task   varchar(36),
    int_cores     integer not null default 0,
    b_managed     boolean not null default false,
    int_min_cores integer not null default 0,
    float_tier    numeric(16,2) not null default 0,
    ts_updated    timestamptz(6) not null default current_timestamp,
    int_gpus      integer not null default 0,
    int_min_gpus  integer not null default 0,
    constraint c_point_pk primary key (pk_point),
    constraint c_point_pk_show_dept unique (pk_show, pk_dept),
    constraint c_point_pk_dept foreign key (pk_dept) references dept (pk_dept),
    constraint c_point_pk_show foreign key (pk_show) references show (pk_show)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table point is 'cores and gpus a department of a show holds';

create table folder (
    pk_folder         varchar(36) not null,
    pk_parent_folder  varchar(36),
    pk_show           varchar(36) not null,
    str_name          varchar(36) not null,
    int_priority      bigint not null default 1,
    b_default         boolean not null default false,
    pk_dept           varchar(36) not null,
    int_job_min_cores integer not null default -1,
    int_job_max_cores integer not null default -1,
    int_job_priority  integer not null default -1,
    int_min_cores     integer not null default 0,
    int_max_cores     integer not null default -1,
    b_exclude_managed boolean not null default false,
    f_order           integer not null default 0,
    int_job_min_gpus  integer not null default -1,
    int_job_max_gpus  integer not null default -1,
    int_min_gpus      integer not null default 0,
    int_max_gpus      integer not null default -1,
    constraint c_folder_pk primary key (pk_folder),
    constraint c_folder_uk unique (pk_parent_folder, str_name),
    constraint c_folder_pk_dept foreign key (pk_dept) references dept (pk_dept),
    constraint c_folder_pk_show foreign key (pk_show) references show (pk_show)
);
comment on table folder is 'group of jobs inside a show; the root folder has no parent';
-- a show's folders
create index i_folder_pkshow on folder (pk_show);

create table folder_level (
    pk_folder_level varchar(36) not null,
    pk_folder       varchar(36) not null,
    int_level       bigint not null default 0,
    constraint c_folder_level_pk primary key (pk_folder_level),
    constraint c_folder_level_uk unique (pk_folder),
    constraint c_folder_level_pk_folder foreign key (pk_folder) references folder (pk_folder)
);
comment on table folder_level is 'depth of a folder, 0 for a root; written by trigger';

create table folder_resource (
    pk_folder_resource varchar(36) not null,
    pk_folder          varchar(36) not null,
    int_cores          integer not null default 0,
    int_max_cores      integer not null default -1,
    int_min_cores      integer not null default 0,
    float_tier         numeric(16,2) not null default 0,
    int_gpus           integer not null default 0,
    int_max_gpus       integer not null default -1,
    int_min_gpus       integer not null default 0,
    constraint c_folder_resource_pk primary key (pk_folder_resource),
    constraint c_folder_resource_pk_folder foreign key (pk_folder) references folder (pk_folder)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table folder_resource is 'cores and gpus a folder holds and may hold, -1 is no limit; written by trigger';

-- Defaults and switches

create table config (
    pk_config  varchar(36) not null,
    str_key    varchar(36) not null,
    int_value  bigint default 0,
    long_value bigint default 0,
    str_value  varchar(255) default '',
    b_value    boolean default false,
    constraint c_pk_pkconfig primary key (pk_config),
    constraint c_show_uk unique (str_key)
);
comment on table config is 'switches, e.g. DISABLE_HISTORY (its presence counts), MAX_FRAME_RETRIES';

create table service (
    pk_service              varchar(36) not null,
    str_name                varchar(36) not null,
    b_threadable            boolean not null,
    int_cores_min           integer not null,
    int_mem_min             integer not null,
    str_tags                varchar(128) not null,
    int_cores_max           integer not null default 0,
    int_gpu_mem_min         bigint not null default 0,
    int_timeout             integer not null default 0,
    int_timeout_llu         integer not null default 0,
    int_gpus_min            integer not null default 0,
    int_gpus_max            integer not null default 0,
    int_min_memory_increase integer not null default 2097152,
    constraint c_pk_service primary key (pk_service)
);
comment on table service is 'defaults of layers by service name';
create unique index i_service_str_name on service (str_name);

create table show_service (
    pk_show_service         varchar(36) not null,
    pk_show                 varchar(36) not null,
    str_name                varchar(36) not null,
    b_threadable            boolean not null,
    int_cores_min           integer not null,
    int_mem_min             integer not null,
    str_tags                varchar(128) not null,
    int_cores_max           integer not null default 0,
    int_gpu_mem_min         bigint not null default 0,
    int_timeout             integer not null default 0,
    int_timeout_llu         integer not null default 0,
    int_gpus_min            integer not null default 0,
    int_gpus_max            integer not null default 0,
    int_min_memory_increase integer not null default 2097152,
    constraint c_pk_show_service primary key (pk_show_service),
    constraint c_show_service_pk_show foreign key (pk_show) references show (pk_show)
);
comment on table show_service is 'defaults of layers by service name, for one show';
create unique index i_show_service_str_name on show_service (str_name, pk_show);

-- Jobs

create table job (
    pk_job           varchar(36) not null,
    pk_folder        varchar(36) not null,
    pk_show          varchar(36) not null,
    str_name         varchar(255) not null,
    str_visible_name varchar(255),
    str_shot         varchar(64) not null,
    str_user         varchar(32) not null,
    str_state        varchar(16) not null,
    str_log_dir      varchar(4000) not null default '',
    int_uid          bigint,
    b_paused         boolean not null default false,
    b_autoeat        boolean not null default false,
    int_frame_count  integer not null default 0,
    int_layer_count  integer not null default 0,
    int_max_retries  smallint not null default 3,
    b_auto_book      boolean not null default true,
    b_auto_unbook    boolean not null default true,
    b_comment        boolean not null default false,
    str_email        varchar(256),
    pk_facility      varchar(36) not null,
    pk_dept          varchar(36) not null,
    ts_started       timestamptz(6) not null default current_timestamp,
    ts_stopped       timestamptz(6),
    int_min_cores    integer not null default 100,
    int_max_cores    integer not null default 20000,
    str_show         varchar(512) not null default 'none',
    ts_updated       timestamptz(6) not null default current_timestamp,
    str_os           varchar(12),
    int_min_gpus     integer not null default 0,
    int_max_gpus     integer not null default 100000,
    str_loki_url     varchar(256),
    ts_eligible      timestamptz(6) not null default current_timestamp,
    constraint c_job_pk primary key (pk_job),
    constraint c_job_uk unique (str_visible_name),
    constraint c_job_pk_dept foreign key (pk_dept) references dept (pk_dept),
    constraint c_job_pk_facility foreign key (pk_facility) references facility (pk_facility),
    constraint c_job_pk_folder foreign key (pk_folder) references folder (pk_folder),
    constraint c_job_pk_show foreign key (pk_show) references show (pk_show)
);
comment on table job is 'a job; str_visible_name is null once it is finished, which frees the name';
-- the tick and the sweep start from the jobs that live
create index i_job_active_pkjob on job (pk_job) where str_state <> 'FINISHED';
-- commands that name a job
create index i_job_str_name on job (str_name);
-- a folder's jobs, and its deletion
create index i_job_pkgroup on job (pk_folder);

create table job_env (
    pk_job_env varchar(36) not null,
    pk_job     varchar(36),
    str_key    varchar(2048),
    str_value  varchar(2048),
    constraint c_job_env_pk primary key (pk_job_env),
    constraint c_job_env_pk_job foreign key (pk_job) references job (pk_job)
);
comment on table job_env is 'environment of the frames of a job';
-- launch: environment of a job
create index i_job_env_pk_job on job_env (pk_job);

create table job_post (
    pk_job_post varchar(36) not null,
    pk_job      varchar(36) not null,
    pk_post_job varchar(36) not null,
    constraint c_job_post_pk primary key (pk_job_post),
    constraint c_job_post_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_job_post_pk_post_job foreign key (pk_post_job) references job (pk_job)
);
comment on table job_post is 'post job that starts when its job ends';
-- the end of a job starts its post jobs
create index i_job_post_pk_job on job_post (pk_job);
-- deletion of a post job
create index i_job_post_pk_post_job on job_post (pk_post_job);

create table job_stat (
    pk_job_stat          varchar(36) not null,
    pk_job               varchar(36) not null,
    int_waiting_count    bigint not null default 0,
    int_running_count    bigint not null default 0,
    int_dead_count       bigint not null default 0,
    int_depend_count     bigint not null default 0,
    int_eaten_count      bigint not null default 0,
    int_succeeded_count  bigint not null default 0,
    int_checkpoint_count bigint not null default 0,
    constraint c_job_stat_pk primary key (pk_job_stat),
    constraint c_job_stat_pk_job foreign key (pk_job) references job (pk_job)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table job_stat is 'frames of a job by state; kept by the trigger on frame';
create unique index i_job_stat_pk_job on job_stat (pk_job);

create table job_resource (
    pk_job_resource varchar(36) not null,
    pk_job          varchar(36) not null,
    int_cores       bigint not null default 0,
    int_max_rss     bigint not null default 0,
    int_max_vss     bigint not null default 0,
    int_min_cores   integer not null default 100,
    int_max_cores   integer not null default 10000,
    float_tier      numeric(16,2) not null default 0,
    int_priority    integer not null default 1,
    int_local_cores integer not null default 0,
    int_gpus        integer not null default 0,
    int_min_gpus    integer not null default 0,
    int_max_gpus    integer not null default 100,
    int_local_gpus  integer not null default 0,
    int_gpu_mem_max bigint not null default 0,
    int_max_pss     bigint default 0,
    constraint c_job_resource_pk primary key (pk_job_resource),
    constraint c_job_resource_uk unique (pk_job),
    constraint c_job_resource_pk_job foreign key (pk_job) references job (pk_job)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table job_resource is 'cores and gpus a job holds and may hold, and its priority';

create table job_usage (
    pk_job_usage            varchar(36) not null,
    pk_job                  varchar(36) not null,
    int_core_time_success   bigint not null default 0,
    int_core_time_fail      bigint not null default 0,
    int_frame_success_count integer not null default 0,
    int_frame_fail_count    integer not null default 0,
    int_clock_time_fail     integer not null default 0,
    int_clock_time_high     integer not null default 0,
    int_clock_time_success  integer not null default 0,
    int_gpu_time_success    bigint not null default 0,
    int_gpu_time_fail       bigint not null default 0,
    constraint c_job_usage_pk primary key (pk_job_usage),
    constraint c_job_usage_pk_job_uniq unique (pk_job),
    constraint c_job_usage_pk_job foreign key (pk_job) references job (pk_job)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table job_usage is 'time spent by the finished frames of a job, in core-, gpu- and clock seconds';

create table job_mem (
    pk_job_mem      varchar(36) not null,
    pk_job          varchar(36) not null,
    int_max_rss     bigint not null default 0,
    int_max_vss     bigint not null default 0,
    int_gpu_mem_max bigint not null default 0,
    int_max_pss     bigint default 0,
    constraint c_job_mem_pk primary key (pk_job_mem),
    constraint c_job_mem_pk_job foreign key (pk_job) references job (pk_job)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table job_mem is 'peak memory of a job, KiB';
create unique index i_job_mem_pk_job on job_mem (pk_job);

-- Layers

create table layer (
    pk_layer               varchar(36) not null,
    pk_job                 varchar(36) not null,
    str_name               varchar(256) not null,
    str_cmd                text not null,
    str_range              text not null,
    int_chunk_size         bigint not null default 1,
    int_dispatch_order     bigint not null default 1,
    int_cores_min          bigint not null default 100,
    int_mem_min            bigint not null default 4194304,
    str_tags               varchar(4000) not null default '',
    str_type               varchar(16) not null,
    b_threadable           boolean not null default true,
    str_services           varchar(128) not null default 'default',
    b_optimize             boolean not null default true,
    int_cores_max          integer not null default 0,
    int_gpu_mem_min        bigint not null default 0,
    int_timeout            integer not null default 0,
    int_timeout_llu        integer not null default 0,
    int_gpus_min           bigint not null default 0,
    int_gpus_max           bigint not null default 0,
    ts_eligible            timestamptz(6) not null default current_timestamp,
    ts_start_after         timestamptz(6),
    str_start_after_reason varchar(255),
    constraint c_layer_pk primary key (pk_layer),
    constraint c_layer_str_name_unq unique (str_name, pk_job),
    constraint c_layer_pk_job foreign key (pk_job) references job (pk_job)
);
comment on table layer is 'a layer: one command over a range of frames, and what a frame of it needs';
-- a job's layers
create index i_layer_pkjob on layer (pk_job);

create table layer_env (
    pk_layer_env varchar(36) not null,
    pk_layer     varchar(36),
    pk_job       varchar(36),
    str_key      varchar(2048),
    str_value    varchar(2048),
    constraint c_layer_env_pk primary key (pk_layer_env),
    constraint c_layer_env_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_env_pk_layer foreign key (pk_layer) references layer (pk_layer)
);
comment on table layer_env is 'environment of the frames of a layer';
-- launch: environment of a layer
create index i_layer_env_pk_layer on layer_env (pk_layer);
-- deletion of a job
create index i_layer_env_pk_job on layer_env (pk_job);

create sequence layer_output_ser_order_seq as integer;
create table layer_output (
    pk_layer_output varchar(36) not null,
    pk_layer        varchar(36) not null,
    pk_job          varchar(36) not null,
    str_filespec    varchar(2048) not null,
    ser_order       integer not null default nextval('layer_output_ser_order_seq'),
    constraint c_pk_layer_output primary key (pk_layer_output),
    constraint c_layer_output_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_output_pk_layer foreign key (pk_layer) references layer (pk_layer)
);
alter sequence layer_output_ser_order_seq owned by layer_output.ser_order;
comment on table layer_output is 'files a layer is expected to write';
create unique index i_layer_output_unique on layer_output (pk_layer, str_filespec);
-- deletion of a job
create index i_layer_output_pk_job on layer_output (pk_job);

create table layer_stat (
    pk_layer_stat        varchar(36) not null,
    pk_layer             varchar(36) not null,
    pk_job               varchar(36) not null,
    int_total_count      bigint not null default 0,
    int_waiting_count    bigint not null default 0,
    int_running_count    bigint not null default 0,
    int_dead_count       bigint not null default 0,
    int_depend_count     bigint not null default 0,
    int_eaten_count      bigint not null default 0,
    int_succeeded_count  bigint not null default 0,
    int_checkpoint_count bigint not null default 0,
    ts_started           timestamptz(6),
    ts_stopped           timestamptz(6),
    constraint c_layerstat_pk primary key (pk_layer_stat),
    constraint c_layer_stat_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_stat_pk_layer foreign key (pk_layer) references layer (pk_layer)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table layer_stat is 'frames of a layer by state; kept by the trigger on frame';
create unique index i_layer_stat_pk_layer on layer_stat (pk_layer);
-- counters of a job's layers: candidates, end of a job
create index i_layerstat_pkjob on layer_stat (pk_job);

create table layer_resource (
    pk_layer_resource varchar(36) not null,
    pk_layer          varchar(36) not null,
    pk_job            varchar(36) not null,
    int_cores         bigint not null default 0,
    int_max_rss       bigint not null default 0,
    int_max_vss       bigint not null default 0,
    int_gpus          integer not null default 0,
    int_gpu_mem_max   bigint not null default 0,
    int_max_pss       bigint default 0,
    constraint c_layerresource_pk primary key (pk_layer_resource),
    constraint c_layerresource_uk unique (pk_layer),
    constraint c_layer_resource_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_resource_pk_layer foreign key (pk_layer) references layer (pk_layer)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table layer_resource is 'cores and gpus a layer holds';
-- deletion of a job
create index i_layer_resource_pk_job on layer_resource (pk_job);

create table layer_usage (
    pk_layer_usage          varchar(36) not null,
    pk_layer                varchar(36) not null,
    pk_job                  varchar(36) not null,
    int_core_time_success   bigint not null default 0,
    int_core_time_fail      bigint not null default 0,
    int_frame_success_count integer not null default 0,
    int_frame_fail_count    integer not null default 0,
    int_clock_time_fail     integer not null default 0,
    int_clock_time_high     integer not null default 0,
    int_clock_time_low      integer not null default 0,
    int_clock_time_success  integer not null default 0,
    int_gpu_time_success    bigint not null default 0,
    int_gpu_time_fail       bigint not null default 0,
    constraint c_layer_usage_pk primary key (pk_layer_usage),
    constraint c_layer_usage_pk_layer_uk unique (pk_layer),
    constraint c_layer_usage_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_usage_pk_layer foreign key (pk_layer) references layer (pk_layer)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table layer_usage is 'time spent by the finished frames of a layer, in core-, gpu- and clock seconds';
-- deletion of a job
create index i_layer_usage_pk_job on layer_usage (pk_job);

create table layer_mem (
    pk_layer_mem    varchar(36) not null,
    pk_job          varchar(36) not null,
    pk_layer        varchar(36) not null,
    int_max_rss     bigint not null default 0,
    int_max_vss     bigint not null default 0,
    int_gpu_mem_max bigint not null default 0,
    int_max_pss     bigint default 0,
    constraint c_layer_mem_pk primary key (pk_layer_mem),
    constraint c_layer_mem_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_layer_mem_pk_layer foreign key (pk_layer) references layer (pk_layer)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table layer_mem is 'peak memory of a layer, KiB';
create unique index i_layer_mem_pk_layer on layer_mem (pk_layer);
-- deletion of a job
create index i_layer_mem_pk_job on layer_mem (pk_job);

-- Frames

create table frame (
    pk_frame                 varchar(36) not null,
    pk_layer                 varchar(36) not null,
    pk_job                   varchar(36) not null,
    str_name                 varchar(256) not null,
    str_state                varchar(24) not null,
    int_number               bigint not null,
    int_depend_count         bigint not null default 0,
    int_exit_status          bigint not null default -1,
    int_retries              bigint not null default 0,
    int_mem_reserved         bigint not null default 0,
    int_mem_max_used         bigint not null default 0,
    int_mem_used             bigint not null default 0,
    int_dispatch_order       bigint not null default 0,
    str_host                 varchar(256),
    int_cores                integer not null default 0,
    int_layer_order          integer not null,
    ts_started               timestamptz(6),
    ts_stopped               timestamptz(6),
    ts_last_run              timestamptz(6),
    ts_updated               timestamptz(6),
    int_version              integer default 0,
    str_checkpoint_state     varchar(12) not null default 'DISABLED',
    int_checkpoint_count     smallint not null default 0,
    int_gpu_mem_reserved     bigint not null default 0,
    int_total_past_core_time integer not null default 0,
    ts_llu                   timestamptz(6),
    int_gpu_mem_used         bigint not null default 0,
    int_gpu_mem_max_used     bigint not null default 0,
    int_gpus                 integer not null default 0,
    int_total_past_gpu_time  integer not null default 0,
    int_pss_max_used         bigint default 0,
    int_pss_used             bigint default 0,
    ts_eligible              timestamptz(6),
    constraint c_frame_pk primary key (pk_frame),
    constraint c_frame_str_name_unq unique (str_name, pk_job),
    constraint c_frame_pk_job foreign key (pk_job) references job (pk_job),
    constraint c_frame_pk_layer foreign key (pk_layer) references layer (pk_layer)
) with (
    -- Room for a frame's next version on its own page: no index names a column that a run changes, so starting and
    -- ending a frame writes the heap page alone.
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
comment on table frame is 'a frame; int_version is its optimistic lock';
-- The tick takes the first n waiting frames of a layer; also release of depends, recounts and deletion by layer.
-- OpenCue's own index holds WAITING frames alone, which makes every change of state write to all indexes of the frame;
-- ours holds all, and maestro.layer_mark says where a layer's waiting frames begin.
create index i_frame_layer_dispatch on frame (pk_layer, int_dispatch_order, int_layer_order);

create table depend (
    pk_depend          varchar(36) not null,
    pk_parent          varchar(36),
    pk_job_depend_on   varchar(36) not null,
    pk_job_depend_er   varchar(36) not null,
    pk_frame_depend_on varchar(36),
    pk_frame_depend_er varchar(36),
    pk_layer_depend_on varchar(36),
    pk_layer_depend_er varchar(36),
    str_type           varchar(36) not null,
    b_active           boolean not null default true,
    b_any              boolean not null default false,
    ts_created         timestamp(6) not null default current_timestamp,
    ts_satisfied       timestamp(6),
    str_target         varchar(20) not null default 'Internal',
    str_signature      varchar(36) not null,
    b_composite        boolean not null default false,
    constraint c_depend_pk primary key (pk_depend)
);
comment on table depend is 'who (er) waits for whom (on); a frame counts its active rows in int_depend_count';
create unique index i_depend_signature on depend (str_signature);
-- a frame ended: who waits for it
create index i_depend_on_frame on depend (pk_frame_depend_on) where b_active;
-- a layer ended: who waits for it
create index i_depend_on_layer on depend (pk_layer_depend_on) where b_active;
-- a job ended: who waits for it; deletion of a job
create index i_depend_pk_on_job on depend (pk_job_depend_on);
-- recount: what a frame waits for
create index i_depend_er_frame on depend (pk_frame_depend_er) where b_active;
-- recount: what a layer waits for
create index i_depend_er_layer on depend (pk_layer_depend_er) where b_active;
-- recount: what a job waits for; deletion of a job
create index i_depend_pk_er_job on depend (pk_job_depend_er);
-- children of a composite depend
create index i_depend_pkparent on depend (pk_parent);

-- Hosts and what runs on them

create table host (
    pk_host          varchar(36) not null,
    pk_alloc         varchar(36) not null,
    str_name         varchar(45) not null,
    str_lock_state   varchar(36) not null,
    b_nimby          boolean not null default false,
    ts_created       timestamp(6) not null default current_timestamp,
    int_cores        bigint not null default 0,
    int_procs        bigint not null default 0,
    int_cores_idle   bigint not null default 0,
    int_mem          bigint not null default 0,
    int_mem_idle     bigint not null default 0,
    b_unlock_boot    boolean not null default false,
    b_unlock_idle    boolean not null default false,
    b_reboot_idle    boolean not null default false,
    str_tags         varchar(128),
    str_fqdn         varchar(128),
    b_comment        boolean not null default false,
    int_thread_mode  integer not null default 0,
    str_lock_source  varchar(128),
    int_gpu_mem      bigint not null default 0,
    int_gpu_mem_idle bigint not null default 0,
    int_gpus         bigint not null default 0,
    int_gpus_idle    bigint not null default 0,
    constraint c_host_pk primary key (pk_host),
    constraint c_host_uk unique (str_name),
    constraint c_str_host_fqdn_uk unique (str_fqdn),
    constraint c_host_pk_alloc foreign key (pk_alloc) references alloc (pk_alloc)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table host is 'a render host: what it has and what of it is idle';
-- an allocation's hosts
create index i_host_pkalloc on host (pk_alloc);

create table host_stat (
    pk_host_stat      varchar(36) not null,
    pk_host           varchar(36) not null,
    int_mem_total     bigint not null default 0,
    int_mem_free      bigint not null default 0,
    int_swap_total    bigint not null default 0,
    int_swap_free     bigint not null default 0,
    int_mcp_total     bigint not null default 0,
    int_mcp_free      bigint not null default 0,
    int_load          bigint not null default 0,
    ts_ping           timestamptz(6) not null default current_timestamp,
    ts_booted         timestamptz(6) not null default current_timestamp,
    str_state         varchar(32) not null default 'UP',
    str_os            varchar(32) not null default 'rhel40',
    int_gpu_mem_total bigint not null default 0,
    int_gpu_mem_free  bigint not null default 0,
    constraint c_hoststat_pk primary key (pk_host_stat),
    constraint c_host_stat_pk_host_uk unique (pk_host),
    constraint c_host_stat_pk_host foreign key (pk_host) references host (pk_host)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
comment on table host_stat is 'what the host last reported';

create table host_tag (
    pk_host_tag  varchar(36) not null,
    pk_host      varchar(36) not null,
    str_tag      varchar(45) not null,
    str_tag_type varchar(24) not null default 'Hardware',
    b_constant   boolean not null default false,
    constraint c_host_tag_pk primary key (pk_host_tag)
);
comment on table host_tag is 'tags of a host by origin; str_tags of host is their concatenation';
-- a host's tags
create index i_host_tag_pk_host on host_tag (pk_host);

create table proc (
    pk_proc                  varchar(36) not null,
    pk_host                  varchar(36) not null,
    pk_job                   varchar(36),
    pk_show                  varchar(36),
    pk_layer                 varchar(36),
    pk_frame                 varchar(36),
    int_cores_reserved       bigint not null,
    int_mem_reserved         bigint not null,
    int_mem_used             bigint not null default 0,
    int_mem_max_used         bigint not null default 0,
    b_unbooked               boolean not null default false,
    int_mem_pre_reserved     bigint not null default 0,
    int_virt_used            bigint not null default 0,
    int_virt_max_used        bigint not null default 0,
    str_redirect             varchar(265),
    b_local                  boolean not null default false,
    ts_ping                  timestamptz(6) not null default current_timestamp,
    ts_booked                timestamptz(6) not null default current_timestamp,
    ts_dispatched            timestamptz(6) not null default current_timestamp,
    int_gpu_mem_reserved     bigint not null default 0,
    int_gpus_reserved        integer not null default 0,
    int_gpu_mem_used         bigint not null default 0,
    int_gpu_mem_max_used     bigint not null default 0,
    int_gpu_mem_pre_reserved bigint not null default 0,
    bytea_children           bytea,
    int_swap_used            bigint not null default 0,
    int_pss_max_used         bigint default 0,
    int_pss_used             bigint default 0,
    constraint c_proc_pk primary key (pk_proc),
    constraint c_proc_uk unique (pk_frame),
    constraint c_proc_pk_frame foreign key (pk_frame) references frame (pk_frame),
    constraint c_proc_pk_host foreign key (pk_host) references host (pk_host)
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
comment on table proc is 'a booking: the share of a host that one frame holds';
-- a host's procs: reports, accounting, lost hosts; those of a layer are found by reading all, which limits alone do
create index i_proc_pkhost on proc (pk_host);

create table redirect (
    pk_proc            varchar(36) not null,
    str_group_id       varchar(36) not null,
    int_type           bigint not null,
    str_destination_id varchar(512) not null,
    str_name           varchar(512) not null,
    lng_creation_time  bigint not null,
    constraint c_redirect_pk primary key (pk_proc)
);
comment on table redirect is 'where a proc goes after its frame';
-- procs redirected together
create index i_redirect_group on redirect (str_group_id);

create table comments (
    pk_comment  varchar(36) not null,
    pk_job      varchar(36),
    pk_host     varchar(36),
    ts_created  timestamp(6) not null default current_timestamp,
    str_user    varchar(36) not null,
    str_subject varchar(128) not null,
    str_message varchar(4000) not null,
    constraint c_comment_pk primary key (pk_comment),
    constraint c_comment_pk_host foreign key (pk_host) references host (pk_host),
    constraint c_comment_pk_job foreign key (pk_job) references job (pk_job)
);
comment on table comments is 'comments on jobs and hosts';
-- comments of a job
create index i_comment_pk_job on comments (pk_job);
-- comments of a host
create index i_comment_pk_host on comments (pk_host);

create table host_local (
    pk_host_local    varchar(36) not null,
    pk_job           varchar(36) not null,
    pk_layer         varchar(36),
    pk_frame         varchar(36),
    pk_host          varchar(36) not null,
    ts_created       timestamptz(6) not null default current_timestamp,
    ts_updated       timestamptz(6),
    int_mem_max      bigint not null default 0,
    int_mem_idle     bigint not null default 0,
    int_cores_max    integer not null default 100,
    int_cores_idle   integer not null default 100,
    int_threads      integer not null default 1,
    float_tier       numeric(16,2) not null default 0,
    b_active         boolean not null default true,
    str_type         varchar(36) not null,
    int_gpu_mem_idle bigint not null default 0,
    int_gpu_mem_max  bigint not null default 0,
    int_gpus_idle    integer not null default 0,
    int_gpus_max     integer not null default 0,
    constraint c_pk_host_local primary key (pk_host_local),
    constraint c_host_local_pk_host foreign key (pk_host) references host (pk_host),
    constraint c_host_local_pk_job foreign key (pk_job) references job (pk_job)
);
comment on table host_local is 'share of a workstation lent to one job (local booking)';
create unique index i_host_local_unique on host_local (pk_host, pk_job);

create table job_local (
    pk_job_local  varchar(36) not null,
    pk_job        varchar(36) not null,
    pk_host       varchar(36) not null,
    str_source    varchar(255) not null,
    ts_created    timestamptz(6) not null default current_timestamp,
    int_cores     integer not null default 0,
    int_max_cores integer not null,
    int_gpus      integer not null default 0,
    int_max_gpus  integer not null default 0,
    constraint c_pk_job_local primary key (pk_job_local),
    constraint c_job_local_pk_host foreign key (pk_host) references host (pk_host),
    constraint c_job_local_pk_job foreign key (pk_job) references job (pk_job)
);
comment on table job_local is 'local booking of a job';
create unique index i_job_local_pk_host on job_local (pk_host);
create unique index i_job_local_pk_job on job_local (pk_job);

-- Limits and licences

create table limit_record (
    pk_limit_record   varchar(36) not null,
    str_name          varchar(255) not null,
    int_max_value     integer,
    b_host_limit      boolean not null default false,
    str_type          varchar(16) not null default 'FRAME',
    str_enforcement   varchar(16) not null default 'ENFORCED',
    int_soft_value    integer not null default -1,
    ts_reported       timestamptz(6),
    str_report_source varchar(255),
    int_report_ttl    integer not null default 900,
    int_exit_status   integer,
    int_delay_minutes integer not null default 0,
    b_auto_tag        boolean not null default true,
    constraint c_limit_record_pk primary key (pk_limit_record),
    constraint c_limit_record_uk_name unique (str_name),
    constraint c_limit_record_ck_delay check (int_delay_minutes >= 0),
    constraint c_limit_record_ck_enforcement check (str_enforcement in ('ENFORCED', 'ADVISORY', 'DISABLED')),
    constraint c_limit_record_ck_exit_status check (int_exit_status is null or int_exit_status > 1),
    constraint c_limit_record_ck_type check (str_type in ('FRAME', 'HOST'))
);
comment on table limit_record is 'a named limit on frames or hosts, e.g. a licence';
create unique index i_limit_record_uk_exit_status on limit_record (int_exit_status) where int_exit_status is not null;

create table limit_usage (
    pk_limit_record   varchar(36) not null,
    int_settled_usage integer not null default 0,
    int_settled_hosts integer not null default 0,
    ts_watermark      timestamptz(6),
    ts_updated        timestamptz(6) not null default current_timestamp,
    constraint c_limit_usage_pk primary key (pk_limit_record),
    constraint c_limit_usage_fk foreign key (pk_limit_record)
        references limit_record (pk_limit_record) on delete cascade
);
comment on table limit_usage is 'use of a limit as the licence server last settled it';

create table limit_host (
    pk_limit_host     varchar(36) not null,
    pk_limit_record   varchar(36) not null,
    str_host_name     varchar(256) not null,
    str_reported_name varchar(256) not null,
    int_tokens        integer not null default 1,
    str_user          varchar(64),
    ts_reported       timestamptz(6) not null default current_timestamp,
    constraint c_limit_host_pk primary key (pk_limit_host),
    constraint c_limit_host_uk unique (pk_limit_record, str_host_name),
    constraint c_limit_host_fk_limit foreign key (pk_limit_record)
        references limit_record (pk_limit_record) on delete cascade,
    constraint c_limit_host_ck_tokens check (int_tokens > 0)
);
comment on table limit_host is 'tokens of a limit held by a host, as last reported';
-- limits that a host holds already
create index i_limit_host_str_host_name on limit_host (str_host_name);

create table layer_limit (
    pk_layer_limit  varchar(36) not null,
    pk_layer        varchar(36) not null,
    pk_limit_record varchar(36) not null,
    str_source      varchar(16) not null default 'SPEC',
    ts_created      timestamptz(6) not null default current_timestamp,
    constraint c_layer_limit_pk primary key (pk_layer_limit),
    constraint c_layer_limit_uk unique (pk_layer, pk_limit_record),
    constraint c_layer_limit_ck_source check (str_source in ('SPEC', 'AUTO', 'MANUAL'))
);
comment on table layer_limit is 'limits a layer is bound to';
-- a limit's layers
create index i_layer_limit_pk_limit_record on layer_limit (pk_limit_record);

-- History

create table job_history (
    pk_job                varchar(36) not null,
    pk_show               varchar(36) not null,
    str_name              varchar(512) not null,
    str_shot              varchar(64) not null,
    str_user              varchar(36) not null,
    int_core_time_success bigint not null default 0,
    int_core_time_fail    bigint not null default 0,
    int_frame_count       bigint not null default 0,
    int_layer_count       bigint not null default 0,
    int_waiting_count     bigint not null default 0,
    int_dead_count        bigint not null default 0,
    int_depend_count      bigint not null default 0,
    int_eaten_count       bigint not null default 0,
    int_succeeded_count   bigint not null default 0,
    int_running_count     bigint not null default 0,
    int_max_rss           bigint not null default 0,
    b_archived            boolean not null default false,
    pk_facility           varchar(36) not null,
    pk_dept               varchar(36) not null,
    int_ts_started        integer not null,
    int_ts_stopped        integer not null default 0,
    dt_last_modified      date not null,
    int_gpu_time_success  bigint not null default 0,
    int_gpu_time_fail     bigint not null default 0,
    int_gpu_mem_max       bigint not null default 0,
    constraint c_job_history_pk primary key (pk_job),
    constraint c_job_history_pk_dept foreign key (pk_dept) references dept (pk_dept),
    constraint c_job_history_pk_facility foreign key (pk_facility) references facility (pk_facility),
    constraint c_job_history_pk_show foreign key (pk_show) references show (pk_show)
);
comment on table job_history is 'what is kept of a job once it is archived';

create table layer_history (
    pk_layer              varchar(36) not null,
    pk_job                varchar(36) not null,
    str_name              varchar(512) not null,
    str_type              varchar(16) not null,
    int_cores_min         bigint not null default 100,
    int_mem_min           bigint not null default 4194304,
    int_core_time_success bigint not null default 0,
    int_core_time_fail    bigint not null default 0,
    int_frame_count       bigint not null default 0,
    int_layer_count       bigint not null default 0,
    int_waiting_count     bigint not null default 0,
    int_dead_count        bigint not null default 0,
    int_depend_count      bigint not null default 0,
    int_eaten_count       bigint not null default 0,
    int_succeeded_count   bigint not null default 0,
    int_running_count     bigint not null default 0,
    int_max_rss           bigint not null default 0,
    b_archived            boolean not null default false,
    dt_last_modified      date not null,
    str_services          varchar(128),
    int_gpus_min          integer not null default 0,
    int_gpu_time_success  bigint not null default 0,
    int_gpu_time_fail     bigint not null default 0,
    int_gpu_mem_min       bigint not null default 0,
    int_gpu_mem_max       bigint not null default 0,
    constraint c_layer_history_pk primary key (pk_layer),
    constraint c_layer_history_pk_job foreign key (pk_job) references job_history (pk_job) on delete cascade
);
comment on table layer_history is 'what is kept of a layer once it is archived';
-- history of a job; its deletion
create index i_layer_history_pk_job on layer_history (pk_job);

create table frame_history (
    pk_frame_history     varchar(36) not null default gen_random_uuid()::text,
    pk_frame             varchar(36) not null,
    pk_layer             varchar(36) not null,
    pk_job               varchar(36) not null,
    str_name             varchar(256) not null,
    str_state            varchar(24) not null,
    int_mem_reserved     bigint not null default 0,
    int_mem_max_used     bigint not null default 0,
    int_cores            integer not null default 100,
    str_host             varchar(64),
    int_exit_status      smallint not null default -1,
    pk_alloc             varchar(36),
    int_ts_started       integer not null,
    int_ts_stopped       integer not null default 0,
    int_checkpoint_count integer not null default 0,
    dt_last_modified     date not null,
    int_gpus             integer not null default 0,
    int_gpu_mem_reserved bigint not null default 0,
    int_gpu_mem_max_used bigint not null default 0,
    constraint c_frame_history_pk primary key (pk_frame_history),
    constraint c_frame_history_pk_alloc foreign key (pk_alloc) references alloc (pk_alloc),
    constraint c_frame_history_pk_job foreign key (pk_job) references job_history (pk_job) on delete cascade,
    constraint c_frame_history_pk_layer foreign key (pk_layer) references layer_history (pk_layer) on delete cascade
);
comment on table frame_history is 'one row a run of a frame; int_ts_stopped 0 is a run still open';
-- the end of a run finds its open row
create index i_frame_history_pk_frame on frame_history (pk_frame);
-- history of a layer; its deletion
create index i_frame_history_pk_layer on frame_history (pk_layer);
-- history of a job; its deletion
create index i_frame_history_pk_job on frame_history (pk_job);

create sequence frame_history_queue_id_seq;
create table frame_history_queue (
    id                   bigint not null default nextval('frame_history_queue_id_seq'),
    str_event            char(1) not null,
    pk_frame             varchar(36) not null,
    int_ts               integer not null,
    pk_layer             varchar(36),
    pk_job               varchar(36),
    str_name             varchar(256),
    str_host             varchar(256),
    pk_alloc             varchar(36),
    int_cores            integer,
    int_mem_reserved     bigint,
    int_gpus             integer,
    int_gpu_mem_reserved bigint,
    int_mem_max_used     bigint,
    int_gpu_mem_max_used bigint,
    int_exit_status      bigint,
    int_checkpoint_count integer,
    constraint frame_history_queue_pkey primary key (id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
alter sequence frame_history_queue_id_seq owned by frame_history_queue.id;
comment on table frame_history_queue is
    'runs that started (S), ended (E) or are to be discarded (X), in order, until they are drained into frame_history';
