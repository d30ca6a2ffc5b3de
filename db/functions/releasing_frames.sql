-- releasing_frames: those of the given finished frames that satisfy depends on a single frame.
-- SUCCEEDED always does; EATEN only where the setting depend_satisfy_only_on_frame_success is false. Called by verbs
-- and unbook; apply_completions and recover_depends apply the same rule to rows that they hold already.
create or replace function maestro.releasing_frames(p_frames text []) returns text []
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select coalesce(array_agg(f.pk_frame), '{}')
    from frame as f
    where f.pk_frame = any(p_frames)
        and (
            f.str_state = 'SUCCEEDED'
            or f.str_state = 'EATEN' and not (select maestro.setting('depend_satisfy_only_on_frame_success'))::boolean
        );
$$;
comment on function maestro.releasing_frames(text []) is
    'Those of p_frames whose state satisfies depends on them: SUCCEEDED, and EATEN if the setting allows it.';
