-- depends: 0005_asks
--
-- Sizes of frames that a host's RQD has refused: the host gets no more of them until it reports something new.

-- A hash of what each host's last report said about its room; written when that changes.
create table maestro.host_mark (
    pk_host text primary key,
    mark integer not null
) with (fillfactor = 50);

-- The smallest refused size, core points, and the host's mark at that time: a refusal ends when the mark changes,
-- and no later than at `until`.
create table maestro.host_refusal (
    pk_host text primary key,
    cores integer not null,
    mark integer,
    until timestamptz not null
);

-- Answers with more columns; it follows with the other functions.
drop function if exists maestro.snapshot();
