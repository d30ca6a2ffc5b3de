-- tag_pattern: the regular expression by which a layer's tags match a host's, or null if they are no valid expression.
-- OpenCue stores a layer's tags as alternatives ("general | desktop") and searches them, as an expanded expression,
-- anywhere in the host's tags; its word boundary binds to the last alternative alone. Ours holds every alternative to
-- whole tags, which is what users mean. Empty tags match every host. Case does not count.
create or replace function maestro.tag_pattern(p_tags text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    -- The line break ends a comment that a # in the tags would start.
    v_pattern text := E'(?ix)(?:^|\\s)(?:' || p_tags || E'\n)(?:\\s|$)';
begin
    if p_tags ~ '^\s*$' then
        return '';
    end if;
    if p_tags !~ '^[\w\s|.-]*$' then
        -- Only tags with other characters can be malformed; trying them needs a subtransaction, so plain ones skip it.
        perform '' ~ v_pattern;
    end if;
    return v_pattern;
exception
    when invalid_regular_expression then
        return null;
end
$$;
comment on function maestro.tag_pattern(text) is
    'Expression that a host''s tags must match for a layer''s str_tags; null when the tags are malformed.';
