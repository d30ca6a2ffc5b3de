-- raise_marks: moves the marks of layers on to their first WAITING frame. Called by commit_plan, which holds the
-- layers' layer_stat rows, so that no frame can come to wait before the mark meanwhile.
-- Frames that others hold locked count as what they were: a mark may lie too low, never too high.
-- Does nothing beside a Cuebot, whose triggers would not move a mark back.
create or replace function maestro.raise_marks(p_layers text []) returns void
language plpgsql  -- whose plans are kept
set search_path = pg_catalog, public, pg_temp
as $$
begin
    insert into maestro.layer_mark as m (pk_layer, first_order)
    select l.pk_layer, f.int_dispatch_order
    from unnest(p_layers) as l (pk_layer)
    left join maestro.layer_mark as o on o.pk_layer = l.pk_layer
    cross join lateral (
        select f.int_dispatch_order
        from frame as f
        where f.pk_layer = l.pk_layer and f.int_dispatch_order >= coalesce(o.first_order, -1)
            and f.str_state = 'WAITING'
        order by f.int_dispatch_order, f.int_layer_order
        limit 1
    ) as f
    where maestro.is_standalone()
    order by l.pk_layer
    on conflict (pk_layer) do update set first_order = excluded.first_order;
end
$$;
comment on function maestro.raise_marks(text []) is
    'Moves layers'' marks on to their first WAITING frame; the caller holds their layer_stat rows.';
