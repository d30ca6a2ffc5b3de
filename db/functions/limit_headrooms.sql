-- limit_headrooms: frames that each limit still allows, and the waiting layers bound to it. Locks nothing.
-- A layer needs room in every limit that it is bound to. Usage is the running frames of all bound layers.
create or replace function maestro.limit_headrooms()
returns table (pk_limit_record text, str_name text, frames_free bigint, layers text [])
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select
        lr.pk_limit_record, lr.str_name, lr.int_max_value - sum(ls.int_running_count),
        array_agg(ls.pk_layer) filter (where ls.int_waiting_count > 0)
    from limit_record as lr
    join layer_limit as ll on ll.pk_limit_record = lr.pk_limit_record
    join layer_stat as ls on ls.pk_layer = ll.pk_layer
    where lr.str_enforcement = 'ENFORCED' and lr.int_max_value is not null
    group by lr.pk_limit_record
    having bool_or(ls.int_waiting_count > 0);
$$;
comment on function maestro.limit_headrooms() is
    'Enforced limits with waiting layers: frames still allowed, and those layers. Locks nothing.';
