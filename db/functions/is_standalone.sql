-- is_standalone: whether OpenCue's tables are those that install --standalone makes, with their own triggers.
create or replace function maestro.is_standalone() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select to_regprocedure('public.cue_frame_state_changed()') is not null;
$$;
comment on function maestro.is_standalone() is 'True where there is no Cuebot: the tables and triggers are Maestro''s own.';
