"""Why a layer waits: one bucket and all reasons (reference section 3.8, contract: waiting)."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Tuple

from planner.caps import Ledger
from planner.model import Host, Layer, Wait

# Buckets in order of precedence: the first that holds names the layer's bucket.
FLOWING, HELD, NO_LICENSE, LIMIT, NO_HOST, CAPACITY, NO_FIT = (
    "flowing", "held", "no_license", "limit", "no_host", "capacity", "no_fit",
)  # fmt: skip
BUCKETS = (FLOWING, CAPACITY, NO_FIT, LIMIT, NO_LICENSE, HELD, NO_HOST)

# The candidate query's gates, by the bucket that they fall in; those not named here are `limit`.
GATE_BUCKETS = {"no host": NO_HOST, "no subscription": LIMIT, "limit": NO_LICENSE}


class Waits:
    """Names reasons from the state at the tick's end; make it after the last placement."""

    def __init__(self, hosts: List[Host], ledger: Ledger) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._group_idle: Dict[int, int] = {}  # core points
        self._group_alloc: Dict[int, str] = {}
        for host in hosts:
            self._group_idle[host.group] = self._group_idle.get(host.group, 0) + host.idle_cores
            self._group_alloc[host.group] = host.pk_alloc
        self._idle: Dict[Tuple[FrozenSet[int], Optional[FrozenSet[int]]], int] = {}
        self._allocs: Dict[Tuple[FrozenSet[int], Optional[FrozenSet[int]]], Tuple[str, ...]] = {}

    def reason(self, layer: Layer, booked: bool) -> Wait:
        """The layer's bucket and reasons."""
        if booked:
            return Wait(FLOWING, ("flowing",))
        if layer.gates:
            return Wait(GATE_BUCKETS.get(layer.gates[0], LIMIT), layer.gates)
        if not layer.groups and not layer.pinned:
            return Wait(NO_HOST, ("no host",))
        refusals = self._ledger.refusals(layer)
        if refusals:
            bucket = NO_LICENSE if all(cap.startswith("limit ") for cap in refusals) else LIMIT
            return Wait(bucket, tuple(refusals))
        least = max(layer.cores_min, 1)
        idle, allocs = self._reach(layer)
        if all(self._ledger.headroom(layer, pk_alloc) < least for pk_alloc in allocs):
            return Wait(LIMIT, ("subscription burst",))
        if idle < least:
            return Wait(CAPACITY, ("farm is full",))
        return Wait(NO_FIT, ("no host has room for one frame",))

    def _reach(self, layer: Layer) -> Tuple[int, Tuple[str, ...]]:
        """Idle points and allocations of the hosts that the layer may use; counted once for layers of equal hosts."""
        key = (layer.groups, layer.pinned)
        if key not in self._idle:
            pinned = [self._hosts[i] for i in layer.pinned or () if self._hosts[i].group not in layer.groups]
            self._idle[key] = sum(self._group_idle.get(g, 0) for g in layer.groups) + sum(h.idle_cores for h in pinned)
            allocs = {self._group_alloc[g] for g in layer.groups if g in self._group_alloc}
            self._allocs[key] = tuple(sorted(allocs | {host.pk_alloc for host in pinned}))
        return self._idle[key], self._allocs[key]
