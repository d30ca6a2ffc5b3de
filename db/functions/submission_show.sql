-- submission_show: the show that a spec names, by its name or an alias of it, with its root folder; null if none.
-- Called by submit_job. Locks: none. Errors: none.
create or replace function maestro.submission_show(p_name text) returns jsonb
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select jsonb_build_object(
        'pk_show', s.pk_show, 'name', s.str_name, 'active', s.b_active, 'paused', s.b_paused,
        'pk_folder', f.pk_folder, 'pk_dept', f.pk_dept
    )
    from show as s
    left join folder as f on f.pk_show = s.pk_show and f.pk_parent_folder is null
    where s.pk_show in (
        select n.pk_show from show as n where n.str_name = p_name
        union all
        select a.pk_show from show_alias as a where a.str_name = p_name
    )
    order by s.str_name = p_name desc, s.pk_show, f.b_default desc, f.pk_folder
    limit 1;
$$;
comment on function maestro.submission_show(text) is
    'The show named p_name (or aliased so) as {pk_show, name, active, paused, pk_folder, pk_dept}; null if there is none.';
