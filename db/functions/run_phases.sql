-- run_phases: the tick's nine phases, in order (phases/run.py). Called by maestro_tick alone, which holds the planning
-- lock.
--
-- SQL where sets are read or written, the planner (pure Python) where decisions are made; the modules of `phases` stand
-- between them. Result: the tick's jsonb as the contract gives it. Any error rolls the whole tick back, except one that
-- committing a layer's frames raises: that costs the layer and is named in `errors`.
create or replace function maestro.run_phases(p_tick_id bigint, p_now timestamptz, p_seed bigint) returns jsonb
language plpython3u
set search_path = pg_catalog, pg_temp
as $python$
import json

plpy.execute("select maestro.load_python()")
from phases.run import run

since = plpy.execute(plpy.prepare("select extract(epoch from $1)::float8 as seconds", ["timestamptz"]), [p_now])
return json.dumps(run(plpy, p_tick_id, p_now, since[0]["seconds"], p_seed))
$python$;
comment on function maestro.run_phases(bigint, timestamptz, bigint) is
    'Runs the nine phases of one tick and returns its jsonb. Only maestro_tick calls it, holding the planning lock.';
