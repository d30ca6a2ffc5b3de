-- depends: 0004_memory
--
-- Frames that ask for memory of their own are planned by it: commit_plan takes what they ask for, and nothing is left
-- to be topped up after it.
drop function if exists maestro.commit_plan(
    bigint, timestamptz, text [], text [], integer [], integer [], integer [], bigint [], integer [], bigint []
);
drop function if exists maestro.top_up_memory(timestamptz);
