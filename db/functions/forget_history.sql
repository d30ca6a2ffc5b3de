-- forget_history: deletes ticks, placements, refused launches and faults older than history_hours, and what
-- frames asked for longer than frame_memory_hours ago. Part of the sweep.
-- At most 20,000 rows of each a call. Locks: the deleted rows. Result: rows deleted.
create or replace function maestro.forget_history(p_now timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_limit constant integer := 20000;
    v_before constant timestamptz := p_now - make_interval(hours => maestro.setting('history_hours')::integer);
    v_last bigint;
    v_rows bigint;
    v_count bigint := 0;
begin
    select max(t.tick_id) into v_last from maestro.tick as t where t.started_at < v_before;
    if v_last is not null then
        delete from maestro.tick_plan where tick_id in (
            select p.tick_id from maestro.tick_plan as p where p.tick_id <= v_last order by p.tick_id limit v_limit
        );
        get diagnostics v_count = row_count;
        -- A tick outlives its placements, which are found by it.
        if v_count < v_limit then
            delete from maestro.tick where tick_id in (
                select t.tick_id from maestro.tick as t where t.tick_id <= v_last order by t.tick_id limit v_limit
            );
            get diagnostics v_rows = row_count;
            v_count := v_count + v_rows;
        end if;
    end if;
    delete from maestro.launch where launch_id in (
        select l.launch_id from maestro.launch as l where l.state = 'refused' and l.created_at < v_before limit v_limit
    );
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from maestro.frame_memory where pk_frame in (
        select m.pk_frame from maestro.frame_memory as m
        where m.updated_at < p_now - make_interval(hours => (select maestro.setting('frame_memory_hours'))::integer)
        limit v_limit
    );
    delete from maestro.layer_streak where pk_layer in (
        select s.pk_layer from maestro.layer_streak as s where s.updated_at < v_before limit v_limit
    );
    delete from maestro.fault where fault_id in (
        select f.fault_id from maestro.fault as f where f.at < v_before order by f.fault_id limit v_limit
    );
    get diagnostics v_rows = row_count;
    return v_count + v_rows;
end
$$;
comment on function maestro.forget_history(timestamp with time zone) is
    'Deletes a bounded batch of ticks, placements, refused launches and faults older than history_hours; returns rows.';
