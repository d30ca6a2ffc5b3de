-- raised_frames: WAITING frames that ask for more memory than their layer, after memory failures of their own.
-- The tick's phase 5: they are planned beside the rest of their layer, with what they ask for. One row a layer and ask
-- (KiB): how many frames. Locks nothing.
create or replace function maestro.raised_frames(p_now timestamptz)
returns table (pk_layer text, mem bigint, frames integer)
language plpgsql stable
set search_path = pg_catalog, public, pg_temp
set jit = off
-- A few rows are joined by their keys to tables that are large.
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    return query
    select f.pk_layer::text, m.mem, count(*)::integer
    from maestro.frame_memory as m
    join frame as f on f.pk_frame = m.pk_frame and f.str_state = 'WAITING'
    join layer as l on l.pk_layer = f.pk_layer and l.int_mem_min < m.mem
    where m.updated_at > p_now - make_interval(hours => (select maestro.setting('frame_memory_hours'))::integer)
    group by f.pk_layer, m.mem
    order by f.pk_layer, m.mem;
end
$$;
comment on function maestro.raised_frames(timestamp with time zone) is
    'Layers with WAITING frames that ask for more memory (KiB) than the layer, and how many there are of each ask.';
