-- lock_host: nothing new starts on the host until a person unlocks it; what runs goes on. An operator's verb.
-- Launches that no launcher has taken yet are undone. Result: pk_host. Errors: QM002.
-- Locks: the tick's lock, the host row, then as take_back.
create or replace function maestro.lock_host(p_host text, p_reason text default 'locked by an operator') returns text
language plpgsql
security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_host text;
begin
    perform maestro.take_tick_lock();
    v_host := maestro.find_host(p_host);
    update host set str_lock_state = 'LOCKED', str_lock_source = left(p_reason, 128) where pk_host = v_host;
    perform maestro.recall_launches(array[v_host], now());
    return v_host;
end
$$;
comment on function maestro.lock_host(text, text) is
    'Locks a host (name or id) against new frames; returns its pk_host. QM002: no such host.';
