-- show_share: who uses what of each allocation, and who is entitled to what. Shares are of this moment: nothing is
-- averaged and nothing decays, so a changed subscription counts from the next tick on.
-- share: of the cores that shows use there. entitlement: of the sizes of the shows that use it or wait for it now.
create or replace view maestro.show_share as
with demand as (
    select distinct j.pk_show
    from public.layer_stat as ls
    join public.job as j on j.pk_job = ls.pk_job
    where ls.int_waiting_count > 0 and j.str_state = 'PENDING' and not j.b_paused
)
select
    s.pk_show,
    sh.str_name as show,
    s.pk_alloc,
    a.str_name as alloc,
    s.int_size as size,
    s.int_burst as burst,
    s.int_cores as cores,
    round(s.int_cores::numeric / nullif(sum(s.int_cores) over w, 0), 4) as share,
    round(
        case when d.pk_show is not null or s.int_cores > 0 then s.int_size else 0 end::numeric
        / nullif(sum(case when d.pk_show is not null or s.int_cores > 0 then s.int_size else 0 end) over w, 0), 4
    ) as entitlement,
    d.pk_show is not null as waits,
    interval '0' as averaging_window
from public.subscription as s
join public.show as sh on sh.pk_show = s.pk_show
join public.alloc as a on a.pk_alloc = s.pk_alloc
left join demand as d on d.pk_show = s.pk_show
window w as (partition by s.pk_alloc);
comment on view maestro.show_share is
    'Each show''s size, burst and cores (core points) in each allocation, its share of the used cores and its '
    'entitlement by size among the shows that use or want it, both from 0 to 1 and of this moment.';
