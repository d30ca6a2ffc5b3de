"""Small farms by hand for the planner's rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

from planner.model import Caps, Host, Layer, Plan, Settings, Share, State
from planner.plan import NOTHING_KNOWN, plan

GIB = 1 << 20  # KiB
NO_CAP = 1 << 62


def host(index: int, cores: int = 4, gib: int = 64, idle: int | None = None, **other: Any) -> Host:
    """`cores` and `idle` in cores, `gib` of memory; other: group, alloc, mode, gpus, gpu_gib, idle_gib, idle_gpus."""
    gpus, gpu_mem = other.get("gpus", 0), other.get("gpu_gib", 0) * GIB
    left = (
        (cores if idle is None else idle) * 100, other.get("idle_gib", gib) * GIB,
        other.get("idle_gpus", gpus), gpu_mem,
    )  # fmt: skip
    return Host(
        index, f"host{index}", f"host{index}", other.get("group", 0), other.get("alloc", "alloc"), other.get("mode", 0),
        (cores * 100, gib * GIB, gpus, gpu_mem), left,
    )  # fmt: skip


def layer(order: int, cores: float = 1, waiting: int = 1, gib: float = 1, **other: Any) -> Layer:
    """`cores` in cores; other: fields of Layer by name, `show` and `job`."""
    made = Layer(
        order, f"layer{order}", other.pop("job", f"job{order}"), other.pop("show", "show"), "folder",
        other.pop("priority", 1), waiting, int(cores * 100), 0, int(gib * GIB), other.pop("gpus", 0),
        int(other.pop("gpu_gib", 0) * GIB), True, frozenset({0}), None, (),
    )  # fmt: skip
    return made._replace(**other)


def caps(**other: Any) -> Caps:
    """No cap at all for show `show` in `alloc`; other: fields of Caps by name."""
    return Caps({}, {}, {("show", "alloc"): Share(100, NO_CAP, 0)}, {}, {})._replace(**other)


def run(
    hosts: list[Host], layers: list[Layer], limits: Caps | None = None, knobs: Settings | None = None, seed: int = 1,
    state: State = NOTHING_KNOWN,
) -> Plan:  # fmt: skip
    return plan(hosts, layers, limits or caps(), knobs or Settings(), seed, lambda: False, state)


def by_host(made: Plan, order: int | None = None) -> Counter[int]:
    """Frames by host index, of one layer or all."""
    return Counter(p.host for p in made.placements if order is None or p.layer == order)


def by_layer(made: Plan) -> Counter[int]:
    return Counter(p.layer for p in made.placements)


def why(made: Plan, order: int) -> dict[str, int]:
    """A layer's reasons: cause -> hosts."""
    return {reason.reason: reason.hosts for reason in made.waits[order].reasons}
