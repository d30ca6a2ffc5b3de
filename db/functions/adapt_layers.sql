-- adapt_layers: what finished runs teach about their layers: memory that was too little or too much, limits that
-- are used up. Called by apply_completions. Locks: layer rows. Errors: none of its own.
--
-- Memory failure: see raise_memory. An optimized layer with successes and frames still to come is lowered to its peak
-- plus 256 MiB.
-- A limit that names the exit status binds the layer to itself and holds it back for the limit's delay; after it one
-- frame is tried per delay (limit_probe), until a frame succeeds that started after the last denial.
create or replace function maestro.adapt_layers(p_done maestro.drained [], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
-- Rows are found by their keys, whatever the statistics say.
set enable_seqscan = off
set enable_mergejoin = off
as $$
declare
    -- KiB: room above the peak.
    v_room constant bigint := 262144;
begin
    perform maestro.raise_memory(p_done, p_now);

    update layer as l set int_mem_min = m.int_max_rss + v_room
    from layer_mem as m
    join layer_stat as s on s.pk_layer = m.pk_layer
    where m.pk_layer in (select d.pk_layer from unnest(p_done) as d where d.success)
        -- No peak is null, not a condition of its own: analysed before any frame had run, the table would promise that
        -- no row meets it.
        and l.pk_layer = m.pk_layer and l.b_optimize and l.int_mem_min > nullif(m.int_max_rss, 0) + v_room
        and s.int_waiting_count + s.int_depend_count > 0;

    -- A frame that started after the last denial has got what others were denied.
    if exists (select from maestro.limit_probe) then
        delete from maestro.limit_probe as p
        using unnest(p_done) as d, frame as f
        where p.pk_layer = d.pk_layer and d.success and f.pk_frame = d.pk_frame and f.ts_started > p.denied_at;
    end if;

    if exists (select from unnest(p_done) as d where d.pk_limit_record is not null and d.state = 'WAITING') then
        insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record, str_source)
        select gen_random_uuid()::text, g.pk_layer, g.pk_limit_record, 'AUTO'
        from (
            select distinct d.pk_layer, d.pk_limit_record
            from unnest(p_done) as d
            join limit_record as r on r.pk_limit_record = d.pk_limit_record
            where d.state = 'WAITING' and r.b_auto_tag
        ) as g
        on conflict (pk_layer, pk_limit_record) do nothing;

        update layer as l set ts_start_after = g.start_after, str_start_after_reason = left(g.reason, 255)
        from (
            select distinct on (d.pk_layer)
                d.pk_layer, p_now + make_interval(mins => r.int_delay_minutes) as start_after,
                format('limit %s: a frame ended with exit status %s', r.str_name, r.int_exit_status) as reason
            from unnest(p_done) as d
            join limit_record as r on r.pk_limit_record = d.pk_limit_record
            where d.state = 'WAITING' and r.int_delay_minutes > 0
            order by d.pk_layer, r.int_delay_minutes desc
        ) as g
        where l.pk_layer = g.pk_layer and (l.ts_start_after is null or l.ts_start_after < g.start_after);

        insert into maestro.limit_probe as p (pk_layer, pk_limit_record, denied_at, next_at)
        select distinct on (d.pk_layer)
            d.pk_layer, d.pk_limit_record, p_now, p_now + make_interval(mins => r.int_delay_minutes)
        from unnest(p_done) as d
        join limit_record as r on r.pk_limit_record = d.pk_limit_record
        where d.state = 'WAITING' and r.int_delay_minutes > 0
        order by d.pk_layer, r.int_delay_minutes desc
        on conflict (pk_layer) do update set
            pk_limit_record = excluded.pk_limit_record, denied_at = excluded.denied_at,
            next_at = greatest(p.next_at, excluded.next_at);
    end if;
end
$$;
comment on function maestro.adapt_layers(maestro.drained [], timestamp with time zone) is
    'Raises layers'' memory after memory failures, lowers optimized ones to their peak, and holds layers back whose '
    'frames ended with a limit''s exit status.';
