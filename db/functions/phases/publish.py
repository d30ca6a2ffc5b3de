"""Phase 9: what was decided goes to those who read it, and what the next tick must know is stored."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List

from phases.book import Outcome
from phases.session import Session, numbers
from planner import tick
from planner.model import COLD, Layer, Plan, Settings

PLACEMENTS = (
    "insert into maestro.tick_plan (tick_id, layers, hosts, layer, host, frames, term_cores, term_mem, term_gpus,"
    " term_gpu_mem, term_locality, term_seat, warmth, backfill, outcome)"
    " values ($1, $2, $3, $4::int[], $5::int[], $6::int[], $7::float8[], $8::float8[], $9::float8[], $10::float8[],"
    " $11::float8[], $12::float8[], $13, $14, $15)"
)
PLACEMENT_TYPES = [
    "bigint", "text[]", "text[]", *["text"] * 9, "text[]", "boolean[]", "text[]",
]  # fmt: skip
REMEMBER_TYPES = [
    "timestamptz", "text[]", "text[]", "int[]", "int[]", "text[]", "text[]", "bigint[]", "text[]", "int[]", "text[]",
    "int[]", "text[]",
]  # fmt: skip
REMEMBER = "select maestro.remember(%s)" % ", ".join("$%d" % number for number in range(1, len(REMEMBER_TYPES) + 1))


def placements(session: Session, tick_id: int, decision: tick.Decision, outcome: Outcome) -> None:
    """The tick's decisions, for maestro.placement."""
    rows = tick.placement_rows(decision, outcome.lost)
    session.rows(
        PLACEMENTS, PLACEMENT_TYPES,
        [
            tick_id, decision.layers, decision.hosts,
            numbers(rows.layer), numbers(rows.host), numbers(rows.frames),
            *(numbers(_unless(term, 0.0), "%.9g".__mod__) for term in rows.terms),
            _unless(rows.warmth, COLD), _unless(rows.backfill, False), _unless(rows.outcome, tick.BOOKED),
        ],
    )  # fmt: skip


def _unless(values: List[Any], usual: Any) -> List[Any]:
    """The list; an empty one, which the view maestro.placement reads alike, if it holds nothing but the usual."""
    return [] if values.count(usual) == len(values) else values


def waits(session: Session, tick_id: int, plan: Plan, found: List[Layer]) -> None:
    """Why each layer waits, for maestro.waitlist."""
    layers, kinds, buckets, reasons = tick.wait_rows(plan, found)
    session.rows(
        "select maestro.publish_waits($1, $2, $3::int[], $4, $5)", ["bigint", "text[]", "text", "text[]", "text[]"],
        [tick_id, layers, numbers(kinds), buckets, reasons],
    )  # fmt: skip


def remember(
    session: Session, now: str, plan: Plan, decision: tick.Decision, outcome: Outcome, settings: Settings
) -> None:
    """Reservations, blocked time, odometers, fruitless plans."""
    before = {row["pk_layer"]: row["ticks"] for row in session.rows("select pk_layer, ticks from maestro.plan_zero")}
    fruitless, warnings = tick.plan_zero(before, decision, outcome.lost, settings)
    session.warnings.extend(warnings)
    booked = tick.odometer(decision, outcome.lost)
    landed = {layer for slot, layer in enumerate(decision.slot_layer) if slot not in outcome.lost}
    session.rows(
        REMEMBER, REMEMBER_TYPES,
        [
            now,
            [grant.pk_host for grant in plan.grants], [grant.pk_layer for grant in plan.grants],
            [grant.priority for grant in plan.grants], [grant.cores_min for grant in plan.grants],
            list(plan.releases),
            list(plan.debts), list(plan.debts.values()),
            list(fruitless), list(fruitless.values()),
            list(booked), list(booked.values()),
            [decision.layers[layer - 1] for layer in sorted(landed)],
        ],
    )  # fmt: skip


def waiting_work(farm: tick.Snapshot, plan: Plan, found: List[Layer]) -> Dict[str, Dict[str, int]]:
    """What still waits and no gate holds back, by pk_alloc: layers, frames, and core points, KiB and gpus in sum."""
    placed = Counter(placement.layer for placement in plan.placements)
    by_groups: Dict[Any, List[int]] = {}
    for layer in found:
        frames = layer.waiting - placed.get(layer.order, 0)
        if frames and not layer.gates:
            at = (layer.groups, layer.pinned)
            sums = by_groups.get(at)
            if sums is None:
                by_groups[at] = sums = [0, 0, 0, 0, 0]
            sums[0] += 1
            sums[1] += frames
            if layer.cores_min > 0:
                sums[2] += frames * layer.cores_min
            sums[3] += frames * layer.mem_min
            if layer.gpus_min:
                sums[4] += frames * layer.gpus_min
    answer: Dict[str, Dict[str, int]] = {}
    for (groups, pinned), sums in by_groups.items():
        allocs = {farm.groups[group]["pk_alloc"] for group in groups}
        allocs.update(farm.hosts[index].pk_alloc for index in pinned or ())
        for pk_alloc in allocs:
            work = answer.setdefault(pk_alloc, dict.fromkeys(("layers", "frames", "cores", "mem", "gpus"), 0))
            for name, amount in zip(work, sums):
                work[name] += amount
    return answer
