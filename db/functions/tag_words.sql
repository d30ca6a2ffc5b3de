-- tag_words: the tags, lower case, of which a host must have one, if a layer's tags are plain alternatives
-- ("general | desktop"); null if they are any other expression.
-- Says the same as tag_pattern for almost all tags there are, without an expression to compile: that takes as long as
-- thirty layers.
create or replace function maestro.tag_words(p_tags text) returns text []
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select string_to_array(regexp_replace(lower(p_tags), '\s', '', 'g'), '|')
    where p_tags ~ '^\s*[A-Za-z0-9_-]+(\s*\|\s*[A-Za-z0-9_-]+)*\s*$';
$$;
comment on function maestro.tag_words(text) is
    'Tags of which a host must have one for a layer''s str_tags; null unless these are plain alternatives.';
