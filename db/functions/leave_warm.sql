-- leave_warm: notes which hosts the layers of finished runs have just left: their data is still on the host's disk.
-- Called by apply_completions after the procs are gone. A layer that still runs there has not left.
-- Locks warmth rows sorted by key. Errors: none of its own.
create or replace function maestro.leave_warm(p_done maestro.drained []) returns void
language plpgsql
set search_path = pg_catalog, public, pg_temp
set jit = off
set enable_mergejoin = off
as $$
begin
    if maestro.setting('locality_window_frames')::integer = 0 or not maestro.setting('locality_enabled')::boolean then
        return;
    end if;
    insert into maestro.warmth as w (pk_host, pk_layer, odometer_at_leave)
    select g.pk_host, g.pk_layer, coalesce(o.frames, 0)
    from (
        -- Each host's procs are read once, however many of its runs have ended.
        select d.pk_host, d.pk_layer from unnest(p_done) as d
        except
        select p.pk_host, p.pk_layer from proc as p
        where p.pk_host = any(array(select distinct d.pk_host from unnest(p_done) as d))
    ) as g
    left join maestro.odometer as o on o.pk_host = g.pk_host
    order by g.pk_host, g.pk_layer
    on conflict (pk_host, pk_layer) do update set odometer_at_leave = excluded.odometer_at_leave;
end
$$;
comment on function maestro.leave_warm(maestro.drained []) is
    'Notes in maestro.warmth the hosts on which finished runs were their layer''s last.';
