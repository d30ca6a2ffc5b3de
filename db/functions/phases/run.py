"""One tick: its nine phases, in order."""

from __future__ import annotations

import gc
import time
from typing import Any, Dict

from phases import gather, publish
from phases.book import book
from phases.session import Session
from planner import tick
from planner.model import Plan


def run(plpy: Any, tick_id: int, now: str, now_s: float, seed: int) -> Dict[str, Any]:
    """Drain, sweep, plan and book; the caller holds the planning lock.

    Arguments: `plpy` of the calling function; `now` the tick's time as PostgreSQL writes it, `now_s` the same in
    seconds since 1970. Result: the tick's answer as the contract gives it.
    """
    # The collector would look through the same many small rows again and again, and none of them is garbage yet.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _run(Session(plpy), tick_id, now, now_s, seed)
    finally:
        if collecting:
            gc.enable()


def _run(session: Session, tick_id: int, now: str, now_s: float, seed: int) -> Dict[str, Any]:
    values = {row["name"]: row["value"] for row in session.rows("select name, value from maestro.setting")}
    settings = gather.knobs(session, values)
    session.done("settings")

    # 1 drain: frames that finished
    drained = session.answer("select maestro.drain($1) as answer", ["timestamptz"], [now])
    session.done("drain")

    # 2 sweep: orphans, lost hosts, what a lost signal left behind, counters that lie
    swept = session.answer("select maestro.sweep($1) as answer", ["timestamptz"], [now])
    session.done("sweep")
    repaired = session.answer(
        "select maestro.compare_counters($1, $2) as answer", ["bigint", "timestamptz"], [tick_id, now]
    )
    session.done("drift")

    # The budget is the plan's own: a drain that took long must not leave the hosts that it freed idle.
    deadline = time.monotonic() + int(values["tick_budget_ms"]) / 1000

    # 3 snapshot: every host that is UP and OPEN
    found_hosts = gather.hosts(session)
    session.done("snapshot")

    # 4 group: hosts of one kind
    farm = tick.snapshot(found_hosts)
    session.done("group")

    # 5 rank: waiting layers, their gates and caps; the lottery itself is the planner's, for it has the seed
    found = gather.work(session, farm, now, values["mode"] == "managed")
    session.done("rank")
    known = gather.state(session, farm, found, settings, now_s)
    session.done("state")

    # 6 place and 7 reserve
    backlog = session.value("select count(*) as answer from maestro.launch where state <> 'refused'")
    halted = backlog >= int(values["launch_backlog_max"])
    if halted:
        message = "%d launches wait: no launcher takes them; nothing planned" % backlog
        session.errors.append({"what": "launchers", "message": message})
        plan = Plan([], {}, 0, False)
    else:
        plan = tick.plan(
            farm.hosts, found.layers, found.caps, settings, seed, lambda: time.monotonic() > deadline, known
        )
    decision = tick.decision(plan, found.layers, farm.hosts)
    session.done("place")

    # 8 commit: all of it, or what guards and errors leave
    outcome = book(session, tick_id, now, decision)
    session.done("commit")

    # 9 publish: what was decided, what the next tick must know, and one notification
    if plan.placements:
        publish.placements(session, tick_id, decision, outcome)
    if not halted:
        publish.waits(session, tick_id, plan, found.layers)
        publish.remember(session, now, plan, decision, outcome, settings)
    if outcome.committed:
        session.rows("select pg_notify('maestro_launch', $1::text)", ["bigint"], [tick_id])
    work = publish.waiting_work(farm, plan, found.layers)
    waiting = tick.waiting(plan, found.layers)
    session.done("publish")

    return {
        "status": "planned",
        "tick_id": tick_id,
        "seed": seed,
        "hosts": len(farm.hosts),
        "groups": len(farm.groups),
        "candidates": sum(1 for layer in found.layers if not layer.gates),
        "cut": plan.cut,
        "out_of_time": plan.out_of_time,
        "cores": sum(host.cores for host in farm.hosts) // 100,
        "idle_cores": sum(host.idle_cores for host in farm.hosts) // 100,
        "drained": drained["drained"],
        "stale": drained.get("stale", 0),
        "swept": swept["swept"],
        "planned": len(plan.placements),
        "committed": outcome.committed,
        "dropped": outcome.dropped,
        "drift_repaired": repaired["repaired"],
        "reservations": {"held": plan.held, "granted": len(plan.grants), "requested": plan.requested},
        "held_cores": plan.held_cores // 100,
        "backfilled": sum(decision.slot_backfill),
        "locality": tick.booked_by_warmth(decision),
        "stranded": {pk_alloc: points // 100 for pk_alloc, points in plan.stranded.items()},
        "work": work,
        "waiting": {bucket: waiting.get(bucket, 0) for bucket in tick.BUCKETS},
        "errors": session.errors + drained.get("errors", []) + swept.get("errors", []) + repaired["errors"],
        "warnings": session.warnings + [{"what": what, "message": message} for what, message in plan.warnings],
        "ms": {**session.ms, "total": round(session.seconds() * 1000, 2)},
    }
