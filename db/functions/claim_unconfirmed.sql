-- claim_unconfirmed: bookings that should be running but that no report has confirmed for launch_confirm_seconds.
-- Called by the launchers' verify duty, which asks the hosts; answered by finish_unconfirmed. This is how the end of
-- a frame is noticed when nobody was there to take RQD's report of it: RQD sends that once and forgets it.
-- Left out: launches that are still open (the launch duty asks about those), bookings whose completion is in the
-- inbox, and the hosts named in p_skip_hosts (they did not answer a moment ago, and must not fill the batch).
-- Hosts are shared out among the living launchers by hash, so that each is asked by one of them. Longest silent first.
-- Locks: none. Errors: none of its own.
create or replace function maestro.claim_unconfirmed(
    p_launcher_id bigint,
    p_max integer,
    p_skip_hosts text [],
    p_now timestamptz default now()
) returns jsonb
language sql stable security definer
set search_path = pg_catalog, public, pg_temp
as $$
    with living as (
        select l.launcher_id, row_number() over (order by l.launcher_id) - 1 as place, count(*) over () as total
          from maestro.launcher as l
         where l.launcher_id = p_launcher_id
            or (l.launcher_id = any((select maestro.living_launchers())::bigint []) and not l.draining)
    ),
    me as (
        select place, total from living where launcher_id = p_launcher_id
    ),
    silent as (
        select p.pk_proc, p.pk_frame, p.pk_job, p.ts_ping, p.ts_dispatched, h.str_name as host_name
          from proc as p
          join host as h on h.pk_host = p.pk_host
         cross join me
         where p.ts_ping < p_now - (
               select make_interval(secs => maestro.setting('launch_confirm_seconds')::integer)  -- once, not a proc
           )
           and p.pk_frame is not null
           and abs(hashtext(p.pk_host)::bigint) % me.total = me.place
           and h.str_name <> all(p_skip_hosts)
           and not exists (
               select from maestro.launch as l where l.pk_proc = p.pk_proc and l.state <> 'refused'
           )
           and not exists (select from maestro.completion as c where c.pk_proc = p.pk_proc)
         order by p.ts_ping, p.pk_proc
         limit p_max
    )
    select coalesce(jsonb_agg(jsonb_build_object(
               'pk_proc', s.pk_proc,
               'pk_frame', s.pk_frame,
               'frame_name', f.str_name,
               'host_name', s.host_name,
               'dial', d.target,
               'pk_job', s.pk_job,
               'job_name', j.str_name,
               'log_dir', j.str_log_dir,
               'started', extract(epoch from s.ts_dispatched)
           ) order by s.ts_ping, s.pk_proc), '[]')
      from silent as s
      join frame as f on f.pk_frame = s.pk_frame and f.str_state = 'RUNNING'
      join job as j on j.pk_job = s.pk_job
      left join maestro.host_dial as d on d.str_name = s.host_name;
$$;
comment on function maestro.claim_unconfirmed(bigint, integer, text [], timestamp with time zone) is
    'Running bookings unconfirmed for launch_confirm_seconds, of this launcher''s share of the hosts, at most p_max; an'
    '  array of {"pk_proc", "pk_frame", "frame_name", "host_name", "dial", "job_name", "log_dir", "started"}.';
