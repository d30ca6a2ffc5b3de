-- frame_memory_ask: how much memory a frame's next run asks for, KiB: its layer's, or more after a memory failure of
-- its own within frame_memory_hours. Locks nothing. Null for a frame that nobody knows.
create or replace function maestro.frame_memory_ask(p_frame text, p_now timestamptz default now()) returns bigint
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
    select greatest(l.int_mem_min, m.mem)
    from frame as f
    join layer as l on l.pk_layer = f.pk_layer
    left join maestro.frame_memory as m on m.pk_frame = f.pk_frame
        and m.updated_at > p_now - make_interval(hours => (select maestro.setting('frame_memory_hours'))::integer)
    where f.pk_frame = p_frame;
$$;
comment on function maestro.frame_memory_ask(text, timestamp with time zone) is
    'Memory (KiB) that a frame''s next run asks for: the layer''s minimum, or more after its own memory failures.';
