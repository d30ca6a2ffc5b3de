-- completed_state: the state of a frame whose run has ended, and the only place that decides it.
-- Called by drain for every completion. Tests stand in order, the first that holds decides (docs/differences.md says
-- where and why they are not Cuebot's):
--   1 exit status 0: SUCCEEDED, unless the run was killed for a retry
--   2 a wish: EATEN or WAITING; STOPPED (the job was killed) is WAITING
--   3 status 286 (no retry spent), or signal 119 (retry asked for) with retries allowed: WAITING
--   4 status or signal 256 (failed launch) below the retry cap: WAITING
--   5 killed (15) while nimby had the host: WAITING
--   6 auto-eat: EATEN
--   7 a limit says that this status means "try later": WAITING
--   8 log silent for longer than the layer's timeout: DEAD
--   9 ran longer than the layer's timeout, or 12 hours: DEAD
--  10 retry cap reached and no memory failure (33, 137): DEAD
--  11 WAITING
create or replace function maestro.completed_state(
    p_exit_status integer,
    p_exit_signal integer,
    p_wish text default null,
    p_nimby_locked boolean default false,
    p_retries bigint default 0,
    p_max_retries integer default 3,
    p_autoeat boolean default false,
    p_backoff boolean default false,
    p_run_seconds bigint default 0,
    p_timeout_minutes integer default 0,
    p_timeout_llu_minutes integer default 0,
    p_llu_seconds double precision default null
) returns text
language sql immutable
as $$
    select case
        when p_exit_status = 0 and p_wish is distinct from 'WAITING' then 'SUCCEEDED'
        when p_wish = 'EATEN' then 'EATEN'
        when p_wish in ('WAITING', 'STOPPED') then 'WAITING'
        when p_exit_status = 286 or p_exit_signal = 119 and p_max_retries <> 0 then 'WAITING'
        when 256 in (p_exit_status, p_exit_signal) and p_retries < p_max_retries then 'WAITING'
        when p_nimby_locked and p_exit_signal = 15 then 'WAITING'
        when p_autoeat then 'EATEN'
        when p_backoff then 'WAITING'
        when p_timeout_llu_minutes > 0 and p_llu_seconds > (p_timeout_llu_minutes - 1) * 60 then 'DEAD'
        when p_timeout_minutes > 0 and p_run_seconds > p_timeout_minutes * 60 then 'DEAD'
        when p_run_seconds > 43200 then 'DEAD'
        when p_retries >= p_max_retries and not (p_exit_status in (33, 137) or p_exit_signal = 33) then 'DEAD'
        else 'WAITING'
    end;
$$;
comment on function maestro.completed_state(
    integer, integer, text, boolean, bigint, integer, boolean, boolean, bigint, integer, integer, double precision
) is
    'State of a frame after a run: SUCCEEDED, WAITING, DEAD or EATEN. Times in seconds, timeouts in minutes (0: none); '
    'p_wish is EATEN, WAITING, STOPPED or null; p_llu_seconds since the last log line, null if unknown.';
