"""A set of hosts that answers: which fitting host has the lowest score for this frame?

Hosts of equal totals form a class, and in a class those of equal idle cores, gpus and gpu memory form a level. Within a
level the score depends on memory alone, so the host with least memory in use is the best of its level: a heap a level
suffices. In a tick idle only falls, so an entry that no longer matches its host promises too much, never too little: it
is moved to its present level when it surfaces. The answer is exact, at a cost of levels, not hosts.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from math import exp
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from planner.model import Ask, Host, Layer, Settings
from planner.score import term
from planner.size import cores_asked

LevelKey = Tuple[int, int, int]  # idle cores, gpus and gpu memory, negated: sorted order is most idle first
ClassKey = Tuple[int, int, int, int, int, str]  # totals, thread mode, alloc

# Bounds are compared to scores that were summed in another order: a margin far above rounding, far below any real gap.
MARGIN = 1.0 - 1e-9


class Best(NamedTuple):
    """The chosen host, what the frame reserves there, and the score."""

    host: Host
    ask: Ask
    score: float


class HostClass:
    """Hosts of equal totals, thread mode and allocation."""

    __slots__ = ("core_terms", "key", "keys", "levels")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.keys: List[LevelKey] = []  # sorted
        self.levels: Dict[LevelKey, List[Tuple[int, int]]] = {}  # heap of (memory in use, host index)
        self.core_terms: Dict[Tuple[int, int], float] = {}  # (points asked, points idle) -> score term

    def push(self, host: Host) -> None:
        key = (-host.idle_cores, -host.idle_gpus, -host.idle_gpu_mem)
        heap = self.levels.get(key)
        if heap is None:
            self.levels[key] = heap = []
            insort(self.keys, key)
        heappush(heap, (host.mem - host.idle_mem, host.index))


class Pool:
    """Hosts that some layers share; `hosts` is the snapshot, of which `members` are in the pool."""

    def __init__(self, hosts: List[Host], members: Iterable[Host], settings: Settings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._classes: Dict[ClassKey, HostClass] = {}
        for host in members:
            self._add(host)

    def _add(self, host: Host) -> None:
        if host.idle_cores <= 0 or host.idle_mem <= 0:
            return
        key = (host.cores, host.mem, host.gpus, host.gpu_mem, host.thread_mode, host.pk_alloc)
        kind = self._classes.get(key)
        if kind is None:
            self._classes[key] = kind = HostClass(key)
        kind.push(host)

    def best(
        self,
        layer: Layer,
        headroom: Callable[[str], int],
        refused: Optional[Set[int]] = None,
        host_frames_max: int = 0,
    ) -> Optional[Best]:
        """The fitting host of lowest score, the first in the snapshot among equals; None if no host fits.

        `headroom` gives the core points that caps leave the layer in an allocation. Hosts of `refused` (indexes) and
        those that have `host_frames_max` frames of this tick (0: no such cap) leave the pool for good.
        """
        weights = self._settings
        best_score = 0.0
        best: Optional[Tuple[int, HostClass, LevelKey, int]] = None
        for kind in self._classes.values():
            cores, mem, gpus, gpu_mem, thread_mode, pk_alloc = kind.key
            if layer.cores_min > cores or layer.mem_min > mem or layer.gpus_min > gpus or layer.gpu_mem_min > gpu_mem:
                continue
            room = headroom(pk_alloc)
            mem_floor = term(weights.weight_mem, 0, layer.mem_min, mem)
            emptied: List[LevelKey] = []
            # A level may gain a neighbour while stale entries move; those lie behind, so a copy is not needed.
            position = 0
            while position < len(kind.keys):
                level = kind.keys[position]
                position += 1
                idle_cores, idle_gpus, idle_gpu_mem = -level[0], -level[1], -level[2]
                if idle_cores < layer.cores_min:
                    break
                if idle_gpus < layer.gpus_min or idle_gpu_mem < layer.gpu_mem_min:
                    continue
                ask_cores = cores_asked(layer, thread_mode, cores, idle_cores)
                if ask_cores == 0 or ask_cores > room:
                    continue
                core_term = kind.core_terms.get((ask_cores, idle_cores))
                if core_term is None:
                    core_term = term(weights.weight_cores, cores - idle_cores, ask_cores, cores)
                    kind.core_terms[(ask_cores, idle_cores)] = core_term
                if best is not None and (core_term + mem_floor) * MARGIN > best_score:
                    # Costs rise from level to level, unless mode ALL lets the frame shrink with the level.
                    if ask_cores == layer.cores_min:
                        break
                    continue
                heap = kind.levels[level]
                used_mem = self._fresh_top(kind, level, heap, refused, host_frames_max)
                if used_mem < 0:
                    emptied.append(level)
                    continue
                if used_mem + layer.mem_min > mem:
                    continue
                total = core_term
                if layer.mem_min:
                    total += weights.weight_mem * (exp((used_mem + layer.mem_min) / mem) - exp(used_mem / mem))
                if gpus and layer.gpus_min:
                    total += term(weights.weight_gpus, gpus - idle_gpus, layer.gpus_min, gpus)
                if gpu_mem and layer.gpu_mem_min:
                    total += term(weights.weight_gpu_mem, gpu_mem - idle_gpu_mem, layer.gpu_mem_min, gpu_mem)
                index = heap[0][1]
                if best is None or total < best_score or (total == best_score and index < best[0]):
                    best_score = total
                    best = (index, kind, level, ask_cores)
            for level in emptied:
                if not kind.levels[level]:
                    del kind.levels[level]
                    kind.keys.remove(level)
        if best is None:
            return None
        index, _, _, ask_cores = best
        ask = Ask(ask_cores, layer.mem_min, layer.gpus_min, layer.gpu_mem_min)
        return Best(self._hosts[index], ask, best_score)

    def _fresh_top(
        self,
        kind: HostClass,
        level: LevelKey,
        heap: List[Tuple[int, int]],
        refused: Optional[Set[int]],
        host_frames_max: int,
    ) -> int:
        """Memory in use of the level's best host that is up to date, or -1 when the level has run empty."""
        while heap:
            used_mem, index = heap[0]
            host = self._hosts[index]
            fresh = (
                host.mem - host.idle_mem == used_mem
                and host.idle_cores == -level[0]
                and host.idle_gpus == -level[1]
                and host.idle_gpu_mem == -level[2]
            )
            closed = (host_frames_max and host.frames >= host_frames_max) or (refused is not None and index in refused)
            if fresh and not closed:
                return used_mem
            heappop(heap)
            if not fresh and not closed and host.idle_cores > 0 and host.idle_mem > 0:
                kind.push(host)
        return -1
