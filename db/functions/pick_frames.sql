-- pick_frames: the frames that a person means by a job, a layer of it and frame numbers; null is all.
-- p_states: only frames in these states; null is all if a layer or frames are named, else the dead ones: naming a whole
-- job must not throw away what it has done.
-- Called by retry_frames, eat_frames, mark_done. Raises QM002 for an unknown job or layer, or a number nothing has.
create or replace function maestro.pick_frames(
    p_job text, p_layer text, p_frames integer [], p_states text []
) returns text []
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_job text := maestro.find_job(p_job);
    v_states text [] := coalesce(
        p_states, case when p_layer is null and p_frames is null then '{DEAD}'::text [] end
    );
    v_missing integer;
begin
    if p_layer is not null and not exists (select from layer where pk_job = v_job and str_name = p_layer) then
        raise exception using
            errcode = 'QM002',
            message = format('job %s has no layer %s', p_job, p_layer),
            hint = (
                select 'Its layers: ' || string_agg(l.str_name, ', ' order by l.int_dispatch_order) || '.'
                from layer as l where l.pk_job = v_job
            );
    end if;
    select n into v_missing
    from unnest(p_frames) as n
    where not exists (
        select from layer as l join frame as f on f.pk_layer = l.pk_layer
        where l.pk_job = v_job and (p_layer is null or l.str_name = p_layer) and f.int_number = n
    )
    limit 1;
    if found then
        raise exception using errcode = 'QM002', message = format('job %s has no frame %s there', p_job, v_missing);
    end if;
    return array(
        select f.pk_frame
        from layer as l join frame as f on f.pk_layer = l.pk_layer
        where l.pk_job = v_job and (p_layer is null or l.str_name = p_layer)
            and (p_frames is null or f.int_number = any(p_frames))
            and (v_states is null or f.str_state = any(v_states))
        order by f.pk_frame
    );
end
$$;
comment on function maestro.pick_frames(text, text, integer [], text []) is
    'Keys of the frames of a job, of one layer, with these numbers, in these states; null is no restriction, but a job '
    'alone means its dead frames. QM002 for names and numbers that do not exist.';
