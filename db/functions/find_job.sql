-- find_job: the job that a person means, by its key or its name. A living job goes before finished ones of its name,
-- of those the last counts. Raises QM002 if there is none.
create or replace function maestro.find_job(p_job text) returns text
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_job text;
begin
    select j.pk_job into v_job
    from job as j
    where j.pk_job = p_job or j.str_name = p_job
    order by j.pk_job = p_job desc, j.str_state = 'FINISHED', j.ts_started desc, j.pk_job
    limit 1;
    if not found then
        raise exception using
            errcode = 'QM002',
            message = format('no job %s', p_job),
            hint = 'Name a job by its name or its id; maestro job list shows them.';
    end if;
    return v_job;
end
$$;
comment on function maestro.find_job(text) is 'pk_job of the job with this key or name, living ones first; else QM002.';
