-- bookable_mem: KiB of a host that frames may reserve, from the total that RQD measured.
-- OpenCue's rule, in its order: a workstation (nimby) lends two thirds plus 512 MiB; the total becomes whole GiB,
-- upwards on 64 bit (firmware takes a bite out of what was bought); 512 MiB stay with the system; 256 MiB is the least.
create or replace function maestro.bookable_mem(p_total_mem bigint, p_is_64bit boolean, p_nimby boolean) returns bigint
language sql immutable
as $$
    select greatest(
        case when p_is_64bit then ceil(t.kib / 1048576) else floor(t.kib / 1048576) end * 1048576 - 524288,
        262144
    )::bigint
    from (select case when p_nimby then p_total_mem / 1.5 + 524288 else p_total_mem::numeric end as kib) as t;
$$;
comment on function maestro.bookable_mem(bigint, boolean, boolean) is
    'Memory that frames may reserve on a host, KiB, from the total that RQD reports, KiB.';
