"""Whose turn is it? Draws the layer that gets the next slot (reference section 3.5, design: placement).

Every slot of an allocation goes to a layer drawn with a probability proportional to its priority among the layers that
can still use one. Exponential clocks give this lazily: layer i's next draw is at t_i + Exp(1) / w_i, and a heap of
draws yields them in time order. With fair share each (allocation, show) has a heap of its own, and the show with the
least cores against its subscription's size goes first. With fifo the draws of layers of equal priority in a show all go
to the one whose job is oldest.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heapreplace
from math import log
from random import Random
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from planner.caps import Ledger
from planner.model import Layer, Settings

Age = Tuple[float, str, int, int]


def weight(priority: int) -> float:
    """A layer's rate. Priorities of 0 and less still draw the least share, so that nothing starves."""
    return float(max(priority, 1))


def in_order(layer: Layer, settings: Settings) -> bool:
    """Whether the layer's show runs its jobs first in, first out."""
    return settings.fifo or layer.pk_show in settings.fifo_shows


def age(layer: Layer) -> Age:
    """Sorts layers by their jobs' start, then by their place in the job."""
    return (layer.job_started_s, layer.pk_job, layer.dispatch_order, layer.order)


def first_draws(layers: List[Layer], settings: Settings, random: Random) -> List[float]:
    """When each layer draws first. Gated layers draw as well, so that one layer's gate does not change others' luck.

    Within a fifo class the draws are dealt out by age, so that a cut never takes the oldest.
    """
    uniform = random.random
    firsts = [-log(1.0 - uniform()) / (layer.priority if layer.priority > 1 else 1) for layer in layers]  # weight()
    if settings.fifo or settings.fifo_shows:
        classes: Dict[Tuple[str, float], List[Layer]] = {}
        for layer in layers:
            if not layer.gates and in_order(layer, settings):
                classes.setdefault((layer.pk_show, weight(layer.priority)), []).append(layer)
        for members in classes.values():
            dealt = sorted(firsts[layer.order] for layer in members)
            for layer, first in zip(sorted(members, key=age), dealt):
                firsts[layer.order] = first
    return firsts


class Line:
    """Layers of a show with equal priority that run first in, first out."""

    __slots__ = ("at", "clocks", "members")

    def __init__(self) -> None:
        self.members: List[int] = []  # orders, oldest first
        self.at = 0  # those before it are done or found no host
        self.clocks = 0  # draws of the line that are in the heap: one a member that is left


class Queue:
    """The draws of the layers that compete for one allocation's slots (of one show, with fair share)."""

    __slots__ = ("clocks", "lines", "pk_alloc", "pk_show")

    def __init__(self, pk_alloc: Optional[str], pk_show: Optional[str]) -> None:
        self.pk_alloc = pk_alloc  # None: all
        self.pk_show = pk_show
        self.clocks: List[Tuple[float, int]] = []  # (time, order), a heap
        self.lines: Dict[int, Line] = {}


Turn = Tuple[int, Optional[str]]  # whose turn it is (an order), and the allocation of the slot; None: anywhere


class Draws:
    """Yields turns. After each the caller says `booked` or `no_host`."""

    def __init__(
        self, layers: List[Layer], entries: List[Tuple[int, Tuple[str, ...]]], firsts: List[float], waiting: List[int],
        ledger: Ledger, settings: Settings, random: Random,
    ) -> None:  # fmt: skip
        """`entries`: the competing layers and the allocations they may use; `waiting`: frames left, kept by the caller.
        """
        self._layers = layers
        self._waiting = waiting
        self._ledger = ledger
        self._uniform = random.random
        queues: Dict[Tuple[Optional[str], Optional[str]], Queue] = {}
        everywhere: Tuple[Optional[str], ...] = (None,)
        for order, allocs in entries:
            pk_show = layers[order].pk_show if settings.fair_share else None
            for pk_alloc in allocs if settings.fair_share else everywhere:
                queue = queues.get((pk_alloc, pk_show))
                if queue is None:
                    queues[pk_alloc, pk_show] = queue = Queue(pk_alloc, pk_show)
                queue.clocks.append((firsts[order], order))
        if settings.fifo or settings.fifo_shows:
            for queue in queues.values():
                self._line_up(queue, settings)
        for queue in queues.values():
            heapify(queue.clocks)
        # Shows of equal tier: the luckiest first draw goes first.
        ranked = sorted(queues.values(), key=lambda q: (q.clocks[0], q.pk_alloc or "", q.pk_show or ""))
        self._queues = ranked
        self._turns = [(self._tier(queue), number) for number, queue in enumerate(ranked)]
        heapify(self._turns)

    def _line_up(self, queue: Queue, settings: Settings) -> None:
        """Put the queue's fifo layers in lines."""
        lines: Dict[Tuple[str, float], Line] = {}
        for _, order in queue.clocks:
            layer = self._layers[order]
            if in_order(layer, settings):
                line = lines.setdefault((layer.pk_show, weight(layer.priority)), Line())
                line.members.append(order)
                line.clocks += 1
                queue.lines[order] = line
        for line in lines.values():
            line.members.sort(key=lambda order: age(self._layers[order]))

    def _tier(self, queue: Queue) -> float:
        if queue.pk_alloc is None or queue.pk_show is None:
            return 0.0
        return self._ledger.tier(queue.pk_show, queue.pk_alloc)

    def next(self) -> Optional[Turn]:
        """The next turn; None when no layer can use a slot any more."""
        waiting = self._waiting
        while self._turns:
            queue = self._queues[self._turns[0][1]]
            clocks = queue.clocks
            while clocks:
                order = clocks[0][1]
                line = queue.lines.get(order) if queue.lines else None
                if line is None:
                    if waiting[order]:
                        return order, queue.pk_alloc
                    heappop(clocks)
                    continue
                while line.at < len(line.members) and not waiting[line.members[line.at]]:
                    line.at += 1
                if len(line.members) - line.at >= line.clocks:
                    return line.members[line.at], queue.pk_alloc
                line.clocks -= 1
                heappop(clocks)
            heappop(self._turns)
        return None

    def no_host(self) -> None:
        """The layer of the last turn finds no host there any more: it leaves the queue."""
        queue = self._queues[self._turns[0][1]]
        line = queue.lines.get(queue.clocks[0][1]) if queue.lines else None
        if line is not None:
            line.at += 1
            line.clocks -= 1
        heappop(queue.clocks)

    def booked(self) -> None:
        """The layer of the last turn took the slot; its clock goes on if it has frames left."""
        queue = self._queues[self._turns[0][1]]
        now, order = queue.clocks[0]
        again = False
        line = queue.lines.get(order) if queue.lines else None
        if line is not None:
            if not self._waiting[line.members[line.at]]:
                line.at += 1
                line.clocks -= 1
                heappop(queue.clocks)
            else:
                again = True
        elif self._waiting[order]:
            again = True
        else:
            heappop(queue.clocks)
        if again:
            priority = self._layers[order].priority
            now -= log(1.0 - self._uniform()) / (priority if priority > 1 else 1)
            heapreplace(queue.clocks, (now, order))
        if len(self._turns) > 1 and queue.pk_show is not None:
            tier = self._ledger.tier(queue.pk_show, queue.pk_alloc)  # type: ignore[arg-type]
            heapreplace(self._turns, (tier, self._turns[0][1]))


class Cut(NamedTuple):
    """What is left of the candidates."""

    layers: List[Layer]  # with the groups where they are weighed, in their old order
    out: Set[int]  # orders of layers that are weighed nowhere; they keep their groups
    lost: int  # (layer, group) pairs


def cut(layers: List[Layer], order: List[int], most: int) -> Cut:
    """Keep, in every group, the first `most` layers of `order` (indexes, lottery order)."""
    crowded = crowded_groups([layers[index].groups for index in order], most)
    if not crowded:
        return Cut(layers, set(), 0)
    taken: Dict[int, int] = {}
    full: Set[int] = set()
    kept = list(layers)
    out: Set[int] = set()
    lost = 0
    for index in order:
        layer = layers[index]
        groups = layer.groups
        if full:
            if groups <= full:
                lost += len(groups)
                if not layer.pinned:
                    out.add(index)
                elif groups:
                    kept[index] = layer._replace(groups=frozenset())
                continue
            inside = groups - full
            if len(inside) < len(groups):
                lost += len(groups) - len(inside)
                kept[index] = layer._replace(groups=inside)
                groups = inside
        for group in groups & crowded:
            count = taken.get(group, 0) + 1
            taken[group] = count
            if count >= most:
                full.add(group)
    return Cut(kept, out, lost)


def crowded_groups(sets: List[FrozenSet[int]], most: int) -> FrozenSet[int]:
    """The groups that are in more than `most` of `sets`; equal sets, of which there are few, are counted at once."""
    counts: Dict[int, int] = {}
    for groups, layers in Counter(sets).items():
        for group in groups:
            counts[group] = counts.get(group, 0) + layers
    return frozenset(group for group, count in counts.items() if count > most)
