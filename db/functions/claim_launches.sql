-- claim_launches: hand up to p_max bookings to one launcher, with all it needs to tell the hosts.
-- Called by the launchers' launch duty, any number of them at once; answered by finish_launches. Oldest first.
-- Taken: ready rows, and claimed rows whose claim is older than launch_claim_seconds and whose launcher fell silent
-- (a living launcher with a slow call keeps its claim). `attempts` above 1 means that an earlier attempt may have
-- reached the host: ask it before sending. `closed` says why the host takes no new frames any more (it was locked, or
-- fell, after the booking): what it does not run already is to be refused, not sent. Rows whose booking is gone (proc
-- deleted, holds another frame, frame no longer RUNNING) are deleted on the way.
-- p_after: only launches with a higher id. While a tick runs, the rows of finished launches cannot be vacuumed: each
-- claim from the beginning reads past all of them, a claim of what is new does not. Now and then claim from 0: launches
-- that were given back have low ids.
-- Locks: launch rows, those that another session holds are skipped; nothing else. Errors: none of its own.
create or replace function maestro.claim_launches(
    p_launcher_id bigint, p_max integer, p_after bigint default 0
) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
-- A plan kept from an empty outbox would loop over a full one.
set plan_cache_mode = force_custom_plan
-- A few hundred rows are joined by their keys; the tables are large and their statistics lag behind. So no part of
-- the statement may be joined to another part, which have no keys.
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
    v_expired timestamptz := now() - make_interval(secs => maestro.setting('launch_claim_seconds')::integer);
    v_living bigint [] := maestro.living_launchers();
    v_answer jsonb;
begin
    with picked as materialized (
        select l.launch_id, l.pk_proc, l.pk_frame, l.attempts + 1 as attempts, l.created_at
          from maestro.launch as l
         where l.launch_id > p_after
           and (
               l.state = 'ready'
               or (l.state = 'claimed' and l.claimed_at < v_expired and l.claimed_by <> all(v_living))
           )
         order by l.launch_id
         limit p_max
           for update skip locked
    ),
    looked_up as materialized (
        select k.launch_id, k.attempts, k.created_at, b.*
          from picked as k
          left join lateral (
              select p.pk_proc, p.pk_frame, p.pk_layer, p.pk_job, p.int_cores_reserved, p.int_mem_reserved,
                     p.int_gpus_reserved, p.int_gpu_mem_reserved, p.b_local, f.str_name as frame_name,
                     f.int_number as frame_number, h.str_name as host_name, d.target as dial,
                     -- How long a frame that runs for the first time was ready to run, s.
                     case when f.int_exit_status = -1
                         then greatest(extract(epoch from f.ts_started - f.ts_eligible)::double precision, 0)
                     end as waited,
                     case
                         -- Who works at a machine books it locally, locked or not.
                         when p.b_local then null
                         when h.str_lock_state <> 'OPEN' then 'the host is ' || h.str_lock_state
                         when hs.str_state <> 'UP' then 'the host is ' || hs.str_state
                     end as closed
                from proc as p
                join frame as f on f.pk_frame = p.pk_frame and f.str_state = 'RUNNING'
                join host as h on h.pk_host = p.pk_host
                left join host_stat as hs on hs.pk_host = h.pk_host
                left join maestro.host_dial as d on d.str_name = h.str_name
               where p.pk_proc = k.pk_proc and p.pk_frame = k.pk_frame
          ) as b on true
    ),
    booked as materialized (
        select u.* from looked_up as u where u.pk_proc is not null
    ),
    obsolete as (
        delete from maestro.launch as l
         using looked_up as u
         where l.launch_id = u.launch_id and u.pk_proc is null
    ),
    claimed as (
        update maestro.launch as l
           set state = 'claimed', claimed_by = p_launcher_id, claimed_at = clock_timestamp(), attempts = b.attempts,
               error = null
          from booked as b
         where l.launch_id = b.launch_id
    ),
    layers as (
        select jsonb_object_agg(y.pk_layer, jsonb_build_object(
                   'name', y.str_name,
                   'cmd', y.str_cmd,
                   'range', y.str_range,
                   'chunk', y.int_chunk_size,
                   'threadable', y.b_threadable,
                   'mem_min', y.int_mem_min,
                   'env', (
                       select coalesce(jsonb_object_agg(e.str_key, coalesce(e.str_value, '')), '{}')
                         from layer_env as e
                        where e.pk_layer = y.pk_layer and e.str_key is not null
                   )
               )) as list
          from layer as y
         where y.pk_layer in (select b.pk_layer from booked as b)
    ),
    jobs as (
        select jsonb_object_agg(j.pk_job, jsonb_build_object(
                   'name', j.str_name,
                   'show', j.str_show,
                   'shot', j.str_shot,
                   'user', j.str_user,
                   'uid', j.int_uid,
                   'log_dir', j.str_log_dir,
                   'os', coalesce(j.str_os, ''),
                   'loki_url', coalesce(j.str_loki_url, ''),
                   'env', (
                       select coalesce(jsonb_object_agg(e.str_key, coalesce(e.str_value, '')), '{}')
                         from job_env as e
                        where e.pk_job = j.pk_job and e.str_key is not null
                   )
               )) as list
          from job as j
         where j.pk_job in (select b.pk_job from booked as b)
    )
    select jsonb_build_object(
               -- An array a column: a tenth of what an object a launch costs, here and at the other end.
               'launches', (
                   select case when count(*) = 0 then '{}' else jsonb_build_object(
                              'launch_id', array_agg(b.launch_id),
                              'pk_proc', array_agg(b.pk_proc),
                              'pk_frame', array_agg(b.pk_frame),
                              'frame_name', array_agg(b.frame_name),
                              'frame_number', array_agg(b.frame_number),
                              'pk_layer', array_agg(b.pk_layer),
                              'pk_job', array_agg(b.pk_job),
                              'host_name', array_agg(b.host_name),
                              'dial', array_agg(b.dial),
                              'cores', array_agg(b.int_cores_reserved),
                              'mem', array_agg(b.int_mem_reserved),
                              'gpus', array_agg(b.int_gpus_reserved),
                              'gpu_mem', array_agg(b.int_gpu_mem_reserved),
                              'local', array_agg(b.b_local),
                              'attempts', array_agg(b.attempts),
                              'waited', array_agg(b.waited),
                              'closed', array_agg(b.closed),
                              'age_seconds', array_agg(extract(epoch from now() - b.created_at))
                          ) end
                     from (select o.* from booked as o order by o.launch_id) as b
               ),
               'layers', coalesce((select y.list from layers as y), '{}'),
               'jobs', coalesce((select j.list from jobs as j), '{}')
           )
      into v_answer;
    return v_answer;
end
$$;
comment on function maestro.claim_launches(bigint, integer, bigint) is
    'Claims up to p_max bookings for a launcher, oldest first, of those after p_after. Returns {"launches": '
    '{column: [value, ...], ...}, "layers": {pk_layer: ...}, "jobs": {pk_job: ...}}; cores in core points, memory in '
    'KiB. Skips rows that others hold; removes obsolete ones.';
