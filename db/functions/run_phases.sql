-- run_phases: the tick's nine phases, in order. Called by maestro_tick alone, which holds the planning lock.
--
-- Each phase is a function of its own: SQL where sets are read or written, the planner (pure Python) where decisions
-- are made. Result: the tick's jsonb as the contract gives it. Any error rolls the whole tick back, except one that
-- committing a layer's frames raises: that costs the layer and is named in `errors`.
create or replace function maestro.run_phases(p_tick_id bigint, p_now timestamptz, p_seed bigint) returns jsonb
language plpython3u
set search_path = pg_catalog, pg_temp
as $python$
import json
import time

started = time.monotonic()
plpy.execute("select maestro.load_python()")
from planner import tick

marks = {}
errors = []


def call(statement, types=(), values=()):
    return plpy.execute(plpy.prepare(statement, list(types)), list(values))


def answer(statement, types=(), values=()):
    return json.loads(call(statement, types, values)[0]["answer"])


def mark(phase, since):
    now = time.monotonic()
    marks[phase] = round((now - since) * 1000, 2)
    return now


settings = {row["name"]: row["value"] for row in call("select name, value from maestro.setting")}
deadline = started + int(settings["tick_budget_ms"]) / 1000
at = time.monotonic()

# 1 drain: frames that finished
drained = answer("select maestro.drain($1) as answer", ["timestamptz"], [p_now])
at = mark("drain", at)

# 2 sweep: orphans, lost hosts, what a lost signal left behind
swept = answer("select maestro.sweep($1) as answer", ["timestamptz"], [p_now])
at = mark("sweep", at)

# 3 snapshot: every host that is UP and OPEN
host_rows = call("select * from maestro.snapshot()")
at = mark("snapshot", at)

# 4 group: hosts of one kind
farm = tick.snapshot(host_rows)
at = mark("group", at)

# 5 rank: waiting layers, their gates and caps; the lottery itself is the planner's, for it has the seed
managed_only = settings["mode"] == "managed"
layer_rows = call(
    "select * from maestro.candidates($1, $2, $3)",
    ["jsonb", "timestamptz", "boolean"],
    [json.dumps(farm.groups), p_now, managed_only],
)
found = tick.layers(layer_rows, farm.hosts)
caps = tick.caps(
    layer_rows,
    call("select * from maestro.show_headrooms()"),
    call("select * from maestro.limit_headrooms()"),
)
backlog = call("select count(*) as launches from maestro.launch where state <> 'refused'")[0]["launches"]
at = mark("rank", at)

# 6 place and 7 reserve
halted = backlog >= int(settings["launch_backlog_max"])
if halted:
    errors.append({"what": "launchers", "message": "%d launches wait: no launcher takes them; nothing planned" % backlog})
plan = tick.plan(
    farm.hosts, found, caps, tick.settings(settings), p_seed, lambda: halted or time.monotonic() > deadline
) if not halted else None
at = mark("place", at)

# 8 commit: all of it, or after an error halves of it, until the layer that raises stands alone
outcome = {"committed": 0, "dropped": {}}
decision = tick.decision(plan, found, farm.hosts) if plan else None
lost = {}
if plan and plan.placements:
    commit = plpy.prepare(
        "select maestro.commit_plan($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as answer",
        ["bigint", "timestamptz", "text[]", "text[]", "int[]", "int[]", "int[]", "bigint[]", "int[]", "bigint[]"],
    )
    parts = [list(range(len(plan.placements)))]
    while parts:
        slots = parts.pop()
        piece = decision if len(slots) == len(plan.placements) else tick.part(decision, slots)
        try:
            with plpy.subtransaction():
                result = json.loads(plpy.execute(commit, [p_tick_id, p_now, *piece[:8]])[0]["answer"])
        except plpy.SPIError as error:
            halves = tick.halves(decision, slots)
            if halves:
                parts.extend(halves)
                continue
            layer = decision.layers[decision.slot_layer[slots[0]] - 1]
            errors.append({"what": "layer " + layer, "message": str(error)})
            result = {"committed": 0, "dropped": {"error": len(slots)}, "lost": list(range(1, len(slots) + 1))}
            lost.update({slot: "error" for slot in slots})
        outcome["committed"] += result["committed"]
        for reason, count in result["dropped"].items():
            outcome["dropped"][reason] = outcome["dropped"].get(reason, 0) + count
        for number in result["lost"]:
            lost.setdefault(slots[number - 1], "dropped")
at = mark("commit", at)

# 9 publish: what was decided, and one notification
waits = plan.waits if plan else {}
if plan and plan.placements:
    call(
        "insert into maestro.tick_plan (tick_id, layers, hosts, layer, host, frames, score, outcome)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8)",
        ["bigint", "text[]", "text[]", "int[]", "int[]", "int[]", "float8[]", "text[]"],
        [p_tick_id, decision.layers, decision.hosts, *tick.placement_rows(decision, lost)],
    )
call(
    "select maestro.publish_waits($1, $2, $3, $4)",
    ["bigint", "text[]", "text[]", "text[]"],
    [
        p_tick_id,
        [found[index].pk_layer for index in waits],
        [wait.reason for wait in waits.values()],
        [json.dumps(wait.reasons) for wait in waits.values()],
    ],
)
if outcome["committed"]:
    call("select pg_notify('maestro_launch', $1::text)", ["bigint"], [p_tick_id])
mark("publish", at)
marks["total"] = round((time.monotonic() - started) * 1000, 2)

waiting = tick.waiting(plan, found) if plan else {}
return json.dumps({
    "status": "planned",
    "tick_id": p_tick_id,
    "seed": p_seed,
    "hosts": len(farm.hosts),
    "groups": len(farm.groups),
    "candidates": sum(1 for layer in found if not layer.gates),
    "cut": plan.cut if plan else 0,
    "out_of_time": plan.out_of_time if plan else False,
    "cores": sum(host.cores for host in farm.hosts) // 100,
    "idle_cores": sum(host.idle_cores for host in farm.hosts) // 100,
    "drained": drained["drained"],
    "stale": drained.get("stale", 0),
    "swept": swept["swept"],
    "planned": len(plan.placements) if plan else 0,
    "committed": outcome["committed"],
    "dropped": outcome["dropped"],
    "drift_repaired": 0,
    "reservations": {"held": 0, "granted": 0, "requested": 0},
    "backfilled": 0,
    "waiting": {bucket: waiting.get(bucket, 0) for bucket in tick.BUCKETS},
    "errors": errors + drained.get("errors", []) + swept.get("errors", []),
    "ms": marks,
})
$python$;
comment on function maestro.run_phases(bigint, timestamptz, bigint) is
    'Runs the nine phases of one tick and returns its jsonb. Only maestro_tick calls it, holding the planning lock.';
