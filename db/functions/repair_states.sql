-- repair_states: counters of frames' states that lie are put right. What they hide is never booked (no waiting frame),
-- and its job never ends. Part of the sweep.
-- Layers of jobs that are not finished are counted anew in slices of about 5,000 frames (some 20 ms), one a call; then
-- jobs are compared with their layers. What is wrong is locked and counted again: whoever changes frames' states holds
-- these rows. A mark (layer_mark) that lies beyond a waiting frame goes. Each repair is a row of maestro.fault, kind
-- drift.
-- Locks: layer_stat, layer_mark, job_stat, each sorted by key; only rows that are wrong. Result: rows repaired.
create or replace function maestro.repair_states(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
declare
    v_slices constant integer := (
        select least(greatest(ceil(c.reltuples / 5000), 1), 400) from pg_class as c where c.oid = 'frame'::regclass
    );
    v_slice constant integer := mod(floor(extract(epoch from p_now) / 10)::bigint, v_slices);
    v_all text [];
    v_layers text [];
    v_jobs text [];
    v_rows bigint;
    v_count bigint := 0;
begin
    v_all := array(
        select s.pk_layer::text
        from job as j join layer_stat as s on s.pk_job = j.pk_job
        where j.str_state not in ('FINISHED', 'STARTUP')
            and mod(hashtext(s.pk_layer)::bigint + 2147483648, v_slices) = v_slice
    );
    v_layers := array(select d.pk_layer from maestro.state_drift(v_all) as d);
    if cardinality(v_layers) > 0 then
        perform maestro.lock_states(
            v_layers, array(select distinct s.pk_job::text from layer_stat as s where s.pk_layer = any(v_layers))
        );
        with repaired as (
            update layer_stat as s set
                int_total_count = d.total, int_waiting_count = d.waiting, int_running_count = d.running,
                int_dead_count = d.dead, int_depend_count = d.depend, int_eaten_count = d.eaten,
                int_succeeded_count = d.succeeded, int_checkpoint_count = d.checkpoint
            from maestro.state_drift(v_layers) as d
            where s.pk_layer = d.pk_layer
            returning d.*
        )
        insert into maestro.fault (at, kind, detail)
        select
            p_now, 'drift',
            jsonb_build_object('what', 'layer_stat', 'id', r.pk_layer, 'frames', to_jsonb(r) - 'pk_layer')
        from repaired as r;
        get diagnostics v_count = row_count;
    end if;

    -- A mark beyond a waiting frame hides it from the commit.
    with gone as (
        delete from maestro.layer_mark as m
        where m.pk_layer = any(v_all) and exists (
            select from frame as f
            where f.pk_layer = m.pk_layer and f.int_dispatch_order < m.first_order and f.str_state = 'WAITING'
        )
        returning m.pk_layer
    )
    insert into maestro.fault (at, kind, detail)
    select p_now, 'drift', jsonb_build_object('what', 'layer_mark', 'id', g.pk_layer) from gone as g;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;

    v_jobs := array(select d.pk_job from maestro.job_state_drift(null) as d);
    if cardinality(v_jobs) > 0 then
        perform maestro.lock_states(
            array(select s.pk_layer::text from layer_stat as s where s.pk_job = any(v_jobs)), v_jobs
        );
        with repaired as (
            update job_stat as s set
                int_waiting_count = d.waiting, int_running_count = d.running, int_dead_count = d.dead,
                int_depend_count = d.depend, int_eaten_count = d.eaten, int_succeeded_count = d.succeeded,
                int_checkpoint_count = d.checkpoint
            from maestro.job_state_drift(v_jobs) as d
            where s.pk_job = d.pk_job
            returning d.*
        )
        insert into maestro.fault (at, kind, detail)
        select
            p_now, 'drift', jsonb_build_object('what', 'job_stat', 'id', r.pk_job, 'frames', to_jsonb(r) - 'pk_job')
        from repaired as r;
        get diagnostics v_rows = row_count;
        v_count := v_count + v_rows;
    end if;
    return v_count;
end
$$;
comment on function maestro.repair_states(timestamp with time zone) is
    'Puts layer_stat and job_stat right that do not agree with the frames, a slice of the layers a call; returns rows.';
