-- forget_state: removes what the planner remembers and no longer needs: warmth displaced by other work, and whatever
-- belongs to layers of jobs that are done. Part of the sweep. Locks the deleted rows. Result: rows deleted.
create or replace function maestro.forget_state(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_rows bigint;
    v_count bigint := 0;
begin
    delete from maestro.warmth as w
    using maestro.odometer as o
    where o.pk_host = w.pk_host
        and o.frames - w.odometer_at_leave >= (select maestro.setting('locality_window_frames')::integer);
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;

    delete from maestro.warmth as w where not exists (
        select from layer as l join job as j on j.pk_job = l.pk_job
        where l.pk_layer = w.pk_layer and j.str_state = 'PENDING'
    );
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;

    delete from maestro.layer_memory as m where not exists (
        select from layer as l join job as j on j.pk_job = l.pk_job
        where l.pk_layer = m.pk_layer and j.str_state = 'PENDING'
    );
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;

    delete from maestro.limit_probe as p where not exists (
        select from layer as l join job as j on j.pk_job = l.pk_job
        where l.pk_layer = p.pk_layer and j.str_state = 'PENDING'
    );
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;

    delete from maestro.plan_zero as z where not exists (
        select from layer_stat as s where s.pk_layer = z.pk_layer and s.int_waiting_count > 0
    );
    -- A refusal that nothing ended is not for ever: the size is tried again.
    delete from maestro.host_refusal as r where r.until < p_now;
    delete from maestro.host_mark as m where not exists (select from host as h where h.pk_host = m.pk_host);
    delete from maestro.odometer as o where not exists (select from host as h where h.pk_host = o.pk_host);
    return v_count;
end
$$;
comment on function maestro.forget_state(timestamp with time zone) is
    'Deletes warmth beyond the window and state of layers whose job is done; returns rows.';
