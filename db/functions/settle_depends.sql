-- settle_depends: closes those of the given new depends whose target is done already.
-- Called by store_submission for depends on jobs outside of the spec. Between the look at those jobs and the insert of
-- the depends a frame may have finished without seeing them; under the tick's lock nobody finishes anything, so each
-- depend is either seen by a later completion or closed here.
-- Locks: the tick until the transaction ends, then as close_depends. Result: depends closed.
create or replace function maestro.settle_depends(p_depends text []) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
declare
    v_done text [];
begin
    perform maestro.take_tick_lock();
    v_done := array(
        select d.pk_depend
        from unnest(maestro.releasing_frames(array(
            select d.pk_frame_depend_on::text from depend as d
            where d.pk_depend = any(p_depends) and d.pk_frame_depend_on is not null
        ))) as f (pk_frame)
        join depend as d on d.pk_frame_depend_on = f.pk_frame
        where d.pk_depend = any(p_depends) and d.b_active
        union all
        select d.pk_depend
        from depend as d
        where d.pk_depend = any(p_depends) and d.b_active and d.pk_frame_depend_on is null and case
            when d.b_any then exists (
                select from frame as f where f.pk_layer = d.pk_layer_depend_on and f.str_state = 'SUCCEEDED'
            )
            when d.pk_layer_depend_on is not null then exists (
                select from layer_stat as s
                where s.pk_layer = d.pk_layer_depend_on
                    and s.int_total_count = s.int_succeeded_count + s.int_eaten_count
            )
            else exists (select from job as j where j.pk_job = d.pk_job_depend_on and j.str_state = 'FINISHED')
        end
    );
    return maestro.close_depends(v_done, now());
end
$$;
comment on function maestro.settle_depends(text []) is
    'Closes those of p_depends whose frame, layer or job is done; keeps ticks out until the transaction ends.';
