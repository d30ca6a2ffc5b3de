"""Places frames: priority is a rate, the host is the cheapest that fits (design: placement; reference 3.1, 3.5).

Every free slot goes to a layer drawn with a probability proportional to its priority among the layers that can still
use one. Exponential clocks give this lazily: layer i's next draw is at t_i + Exp(1) / w_i, and a heap of draws yields
them in time order. The first draws order the layers as the Efraimidis-Spirakis lottery does, so they also cut the
candidates.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from random import Random
from typing import Callable, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from planner.caps import Ledger
from planner.model import Caps, Host, Layer, Placement, Plan, Settings
from planner.pool import Best, Pool
from planner.wait import Waits

CLOCK_EVERY = 64  # draws between two looks at the clock

Members = Tuple[FrozenSet[int], Optional[FrozenSet[int]]]  # groups, and hosts that tags name


def weight(priority: int) -> float:
    """A layer's rate. Priorities of 0 and less still draw the least share, so that nothing starves."""
    return float(max(priority, 1))


class Placer:
    """One tick's placement. Use `place`."""

    def __init__(self, hosts: List[Host], layers: List[Layer], caps: Caps, settings: Settings) -> None:
        self.hosts = hosts
        self.layers = layers
        self.settings = settings
        self.ledger = Ledger(caps)
        self.placements: List[Placement] = []
        self.waiting = [layer.waiting for layer in layers]
        self._by_group: Dict[int, List[Host]] = {}
        for host in hosts:
            self._by_group.setdefault(host.group, []).append(host)
        self._shared: Dict[Members, Pool] = {}
        self._private: Dict[int, Pool] = {}
        self._refused: Dict[int, Set[int]] = {}
        self._job_frames: Dict[Tuple[str, int], int] = {}  # (job, host index) -> frames of this tick

    def members(self, layer: Layer) -> Iterable[Host]:
        """The hosts that the layer's groups and pins allow, each once."""
        for group in sorted(layer.groups):
            yield from self._by_group.get(group, ())
        for index in sorted(layer.pinned or ()):
            if self.hosts[index].group not in layer.groups:
                yield self.hosts[index]

    def pool(self, layer: Layer) -> Pool:
        """The layer's own pool once a host refused it, else the one it shares with layers of the same hosts."""
        if layer.order in self._private:
            return self._private[layer.order]
        key = (layer.groups, layer.pinned)
        if key not in self._shared:
            self._shared[key] = Pool(self.hosts, self.members(layer), self.settings)
        return self._shared[key]

    def best(self, layer: Layer) -> Optional[Best]:
        """Where the layer's next frame goes; None if no host takes it in this tick any more."""
        if not self.ledger.allows(layer):
            return None
        return self.pool(layer).best(
            layer, self.ledger.headroom, self._refused.get(layer.order), self.settings.host_frame_dispatch_max
        )

    def book(self, layer: Layer, best: Best) -> None:
        """Take the slot: host, caps and the layer's backlog."""
        best.host.take(best.ask)
        self.ledger.spend(layer, best.host.pk_alloc, best.ask)
        self.waiting[layer.order] -= 1
        self.placements.append(Placement(layer.order, best.host.index, best.ask, best.score))
        cap = self.settings.job_frame_dispatch_max
        if cap:
            key = (layer.pk_job, best.host.index)
            self._job_frames[key] = self._job_frames.get(key, 0) + 1
            if self._job_frames[key] >= cap:
                self._refuse(layer.pk_job, best.host)

    def _refuse(self, pk_job: str, host: Host) -> None:
        """The host takes no more of the job in this tick: its layers leave the shared pools for pools of their own."""
        for layer in self.layers:
            if layer.pk_job == pk_job:
                self._refused.setdefault(layer.order, set()).add(host.index)
                if layer.order not in self._private:
                    self._private[layer.order] = Pool(self.hosts, self.members(layer), self.settings)


def cut(layers: List[Layer], order: List[int], most: int) -> Tuple[List[Layer], int]:
    """Keep, in every group, the first `most` layers of `order` (indexes, lottery order).

    Result: the layers with their groups so narrowed, in their old order, and how many (layer, group) pairs were cut.
    """
    taken: Dict[int, int] = {}
    kept = list(layers)
    lost = 0
    for index in order:
        layer = layers[index]
        inside = frozenset(group for group in layer.groups if taken.get(group, 0) < most)
        for group in inside:
            taken[group] = taken.get(group, 0) + 1
        if len(inside) < len(layer.groups):
            lost += len(layer.groups) - len(inside)
            kept[index] = layer._replace(groups=inside)
    return kept, lost


def place(
    hosts: List[Host],
    layers: List[Layer],
    caps: Caps,
    settings: Settings,
    seed: int,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Plan:
    """Decide where waiting frames run.

    Arguments: `hosts` and `layers` in snapshot order, `index` and `order` being the place in the list (idle of hosts
    falls); `caps` what may be booked; `seed` of the lottery; `out_of_time` is asked every CLOCK_EVERY draws.
    Result: placements in draw order, and why each layer with frames left waits. Same input and seed, same plan.
    """
    random = Random(seed)
    clocks: List[Tuple[float, int]] = []
    for layer in layers:
        # Each layer draws, candidate or not, so that one layer's gate does not change the others' luck.
        first = random.expovariate(1.0) / weight(layer.priority)
        if not layer.gates and (layer.groups or layer.pinned):
            clocks.append((first, layer.order))
    lost = 0
    if len(clocks) > settings.layer_candidates_per_group_max:
        order = [index for _, index in sorted(clocks)]
        layers, lost = cut(layers, order, settings.layer_candidates_per_group_max)
    placer = Placer(hosts, layers, caps, settings)
    heapify(clocks)
    late = False
    draws = 0
    while clocks:
        draws += 1
        if draws % CLOCK_EVERY == 0 and out_of_time():
            late = True
            break
        now, index = clocks[0]
        layer = layers[index]
        best = placer.best(layer)
        if best is None:
            heappop(clocks)
            continue
        placer.book(layer, best)
        if placer.waiting[index]:
            heapreplace(clocks, (now + random.expovariate(1.0) / weight(layer.priority), index))
        else:
            heappop(clocks)
    booked = {placement.layer for placement in placer.placements}
    reasons = Waits(hosts, placer.ledger)
    waits = {
        layer.order: reasons.reason(layer, layer.order in booked) for layer in layers if placer.waiting[layer.order]
    }
    return Plan(placer.placements, waits, lost, late)
