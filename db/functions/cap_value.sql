-- cap_value: the value of the cap that a reason for waiting names, as it is now; null if it names none.
-- Called by the view waitlist, so its readers may call it. Core points, whole gpus, frames or machines of a limit, or a
-- setting's number. A show has a burst in each allocation: the largest. Locks nothing.
create or replace function maestro.cap_value(p_layer text, p_reason text) returns numeric
language sql stable security definer
set search_path = pg_catalog, public, pg_temp
set jit = off
as $$
    select case
        when p_reason in ('job cores', 'job gpus') then (
            select case p_reason when 'job cores' then r.int_max_cores else r.int_max_gpus end
            from layer as l join job_resource as r on r.pk_job = l.pk_job
            where l.pk_layer = p_layer
        )
        when p_reason in ('folder cores', 'folder gpus') then (
            select case p_reason when 'folder cores' then r.int_max_cores else r.int_max_gpus end
            from layer as l
            join job as j on j.pk_job = l.pk_job
            join folder_resource as r on r.pk_folder = j.pk_folder
            where l.pk_layer = p_layer
        )
        when p_reason = 'subscription burst' then (
            select max(s.int_burst)
            from layer as l
            join job as j on j.pk_job = l.pk_job
            join subscription as s on s.pk_show = j.pk_show
            where l.pk_layer = p_layer
        )
        when p_reason like 'limit %' then (
            select case when r.str_type = 'HOST' and r.int_soft_value >= 0 then r.int_soft_value else r.int_max_value end
            from limit_record as r where r.str_name = substr(p_reason, 7)
        )
        when p_reason ~ '(_max|_frac|_ms)$' then (
            select s.value::numeric
            from maestro.setting as s where s.name = regexp_replace(p_reason, '^.* ', '')
        )
    end;
$$;
comment on function maestro.cap_value(text, text) is
    'Value of the cap that a reason of a layer names (core points, gpus, frames, machines, or a setting); null if none.';
