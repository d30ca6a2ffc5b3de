-- close_depends: marks depends as satisfied and takes them off the counts of the frames that waited.
-- Called by satisfy_depends and the sweep, inside the tick or under take_tick_lock. Only active rows count, so that
-- a depend is taken off once, whoever comes second.
-- Locks: depend rows sorted by key, then frames, layer_stat and job_stat by trigger. Result: depends closed.
create or replace function maestro.close_depends(p_depends text [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_closed depend [];
begin
    if coalesce(cardinality(p_depends), 0) = 0 then
        return 0;
    end if;
    perform from depend where pk_depend = any(p_depends) order by pk_depend for update;
    -- The signature is given up, so that the same depend may be made again.
    with closed as (
        update depend set b_active = false, ts_satisfied = p_now, str_signature = pk_depend
        where pk_depend = any(p_depends) and b_active and not b_composite
        returning depend
    )
    select array_agg(c.depend) into v_closed from closed as c;
    if v_closed is null then
        return 0;
    end if;

    with owed as (
        select d.pk_frame_depend_er as pk_frame
        from unnest(v_closed) as d where d.str_type like 'FRAME\_ON\_%'
        union all
        select f.pk_frame
        from unnest(v_closed) as d join frame as f on f.pk_layer = d.pk_layer_depend_er
        where d.str_type like 'LAYER\_ON\_%'
        union all
        select f.pk_frame
        from unnest(v_closed) as d
        join layer as l on l.pk_job = d.pk_job_depend_er
        join frame as f on f.pk_layer = l.pk_layer
        where d.str_type like 'JOB\_ON\_%'
    ),
    summed as materialized (
        select o.pk_frame, count(*) as depends from owed as o group by o.pk_frame
    )
    update frame as f set int_depend_count = greatest(f.int_depend_count - s.depends, 0)
    from summed as s
    where f.pk_frame = s.pk_frame and f.int_depend_count > 0;

    update depend as p set b_active = false, ts_satisfied = p_now, str_signature = p.pk_depend
    where p.pk_depend in (select d.pk_parent from unnest(v_closed) as d where d.pk_parent is not null)
        and p.b_active and p.b_composite
        and not exists (select from depend as c where c.pk_parent = p.pk_depend and c.b_active);
    return cardinality(v_closed);
end
$$;
comment on function maestro.close_depends(text [], timestamp with time zone) is
    'Marks active depends as satisfied and lowers the depend count of each frame that waited once by their sum; '
    'returns the number closed.';
