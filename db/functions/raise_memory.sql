-- raise_memory: what memory failures teach: the frame asks for more at its next run, the layer only after a streak.
-- Called by adapt_layers with the batch that has ended. Serial under the tick's lock, so reports that come together
-- raise a layer once.
--
-- A frame that failed asks for what its run had reserved plus its service's increase (frame_memory), or for all that
-- the largest host has if that lies between; its success forgets that. A layer's streak counts different frames that
-- failed with at least the layer's own memory; a success with the layer's own memory ends it, one with a frame's own
-- says nothing about the layer. At oom_layer_escalate_threshold the layer asks for more by the same increase, is no
-- longer optimized, and the streak starts anew.
-- Locks: layer rows. Result: layers raised. Errors: none of its own.
create or replace function maestro.raise_memory(p_done maestro.drained [], p_now timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    -- KiB, for a service that says nothing else.
    v_increase constant bigint := 2097152;
    v_threshold constant integer := maestro.setting('oom_layer_escalate_threshold')::integer;
    v_raised integer := 0;
    v_largest bigint;
begin
    delete from maestro.layer_streak as s
    using unnest(p_done) as d
    where s.pk_layer = d.pk_layer and d.success
        and not exists (select from maestro.frame_memory as m where m.pk_frame = d.pk_frame);

    if exists (select from unnest(p_done) as d where d.memory_failure) then
        select max(h.int_mem) into v_largest from host as h;
        with failed as materialized (
            select
                d.pk_frame, d.pk_layer, d.mem_reserved, l.int_mem_min,
                coalesce(ss.int_min_memory_increase, s.int_min_memory_increase, v_increase) as increase,
                d.completion_id > coalesce(
                    max(d.completion_id) filter (
                        where d.success and not exists (
                            select from maestro.frame_memory as m where m.pk_frame = d.pk_frame
                        )
                    ) over (partition by d.pk_layer), 0
                ) and d.mem_reserved >= l.int_mem_min as counts,
                d.memory_failure
            from unnest(p_done) as d
            join layer as l on l.pk_layer = d.pk_layer
            left join show_service as ss
                on ss.pk_show = d.pk_show and ss.str_name = trim(split_part(l.str_services, ',', 1))
            left join service as s on s.str_name = trim(split_part(l.str_services, ',', 1))
        ),
        asks as (
            insert into maestro.frame_memory as m (pk_frame, pk_layer, mem, updated_at)
            select
                f.pk_frame, f.pk_layer,
                case when f.mem_reserved < v_largest
                    then least(f.mem_reserved + f.increase, v_largest)
                    else f.mem_reserved + f.increase
                end,
                p_now
            from failed as f where f.memory_failure
            order by f.pk_frame
            on conflict (pk_frame) do update set
                mem = greatest(m.mem, excluded.mem), failures = m.failures + 1, updated_at = excluded.updated_at
        ),
        streak as (
            insert into maestro.layer_streak as s (pk_layer, frames, updated_at)
            select f.pk_layer, array_agg(f.pk_frame), p_now
            from failed as f where f.memory_failure and f.counts
            group by f.pk_layer
            order by f.pk_layer
            on conflict (pk_layer) do update set
                frames = array(select unnest(s.frames) union select unnest(excluded.frames)),
                updated_at = excluded.updated_at
            returning s.pk_layer, cardinality(s.frames) >= v_threshold as is_full
        )
        update layer as l set
            b_optimize = false,
            int_mem_min = case when g.is_full then greatest(l.int_mem_min, g.mem) else l.int_mem_min end
        from (
            select
                f.pk_layer, coalesce(bool_or(s.is_full), false) as is_full,
                min(f.mem_reserved + f.increase) filter (where f.counts) as mem
            from failed as f left join streak as s on s.pk_layer = f.pk_layer
            where f.memory_failure
            group by f.pk_layer
        ) as g
        where l.pk_layer = g.pk_layer and (l.b_optimize or g.is_full);

        delete from maestro.layer_streak as s
        where s.pk_layer in (select d.pk_layer from unnest(p_done) as d where d.memory_failure)
            and cardinality(s.frames) >= v_threshold;
        get diagnostics v_raised = row_count;
    end if;

    if exists (select from maestro.frame_memory) then
        delete from maestro.frame_memory
        where pk_frame in (select d.pk_frame from unnest(p_done) as d where d.state in ('SUCCEEDED', 'EATEN'));
    end if;
    return v_raised;
end
$$;
comment on function maestro.raise_memory(maestro.drained [], timestamp with time zone) is
    'Has frames that failed for memory ask for more (KiB), and layers after a streak of such frames; returns layers '
    'raised.';
