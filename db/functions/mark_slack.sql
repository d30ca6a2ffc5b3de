-- mark_slack: frames that a reading may pass in vain before the layer's mark is moved on. A move costs one row, reading
-- a passed frame a tenth of that.
create or replace function maestro.mark_slack() returns integer
language sql immutable
as $$
    select 16;
$$;
comment on function maestro.mark_slack() is 'Frames passed in vain after which a layer''s mark is moved on.';
