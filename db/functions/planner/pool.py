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

from planner.model import THREAD_ALL, THREAD_AUTO, Ask, Host, Layer, Settings, Terms
from planner.score import term
from planner.size import cores_asked

LevelKey = Tuple[int, int, int]  # idle cores, gpus and gpu memory, negated: sorted order is most idle first
ClassKey = Tuple[int, int, int, int, int, str]  # totals, thread mode, alloc

Entry = Tuple[int, int, int]  # memory in use, host index, host version

# Bounds are compared to scores that were summed in another order: a margin far above rounding, far below any real gap.
MARGIN = 1.0 - 1e-9


class Best(NamedTuple):
    """The chosen host, what the frame reserves there, and the score."""

    host: Host
    ask: Ask
    score: float
    terms: Terms


def class_key(host: Host) -> ClassKey:
    """What hosts of a class have in common."""
    return (host.cores, host.mem, host.gpus, host.gpu_mem, host.thread_mode, host.pk_alloc)


class HostClass:
    """Hosts of equal totals, thread mode and allocation."""

    __slots__ = ("core_terms", "cores", "gpu_mem", "gpus", "keys", "levels", "mem", "thread_mode")

    def __init__(self, host: Host) -> None:
        """`host` is one of the class."""
        self.cores, self.mem, self.gpus, self.gpu_mem = host.cores, host.mem, host.gpus, host.gpu_mem
        self.thread_mode = host.thread_mode
        self.keys: List[LevelKey] = []  # sorted
        self.levels: Dict[LevelKey, List[Entry]] = {}  # a heap each
        self.core_terms: Dict[Tuple[int, int], float] = {}  # (points asked, points idle) -> score term

    def push(self, host: Host, gpu_frames: bool) -> None:
        """Enter the host at its present level, if it has anything left."""
        idle_cores, idle_mem = host.spare(gpu_frames)
        if idle_cores <= 0 or idle_mem <= 0:
            return
        key = (-idle_cores, -host.idle_gpus, -host.idle_gpu_mem)
        heap = self.levels.get(key)
        if heap is None:
            self.levels[key] = heap = []
            insort(self.keys, key)
        heappush(heap, (host.mem - idle_mem, host.index, host.version))

    def drop(self, key: LevelKey) -> None:
        """Forget a level that has run empty."""
        if not self.levels[key]:
            del self.levels[key]
            self.keys.remove(key)


class Pool:
    """Hosts that some layers share; `hosts` is the snapshot, of which `members` are in the pool."""

    def __init__(
        self, hosts: List[Host], members: Iterable[Host], settings: Settings, gpu_frames: bool, moved: List[int]
    ) -> None:
        """`gpu_frames`: whether the layers ask for gpus or gpu memory, so that what is held for those is theirs.

        `moved`: indexes of the hosts that took a frame, in order; the caller adds to it.
        """
        self._hosts = hosts
        self._settings = settings
        self._gpu_frames = gpu_frames
        self._by_alloc: Dict[str, List[HostClass]] = {}
        self.open: List[Host] = []  # members with anything left when the pool was made
        self.most_cores = 0  # idle points of the emptiest member when the pool was made: what asks more fits nowhere
        self._moved = moved
        self._seen = len(moved)
        self._indexes: Optional[Set[int]] = None  # of the open hosts, once needed
        self._classes: Dict[ClassKey, HostClass] = {}
        classes = self._classes
        for host in members:
            if host.idle_cores <= 0 or host.idle_mem <= 0:
                continue
            self.open.append(host)
            if host.idle_cores > self.most_cores:
                self.most_cores = host.idle_cores
            key = class_key(host)
            kind = classes.get(key)
            if kind is None:
                classes[key] = kind = HostClass(host)
                self._by_alloc.setdefault(host.pk_alloc, []).append(kind)
            kind.push(host, gpu_frames)
        self._takes_idle = any(kind.thread_mode == THREAD_ALL for kind in classes.values())

    def best(
        self,
        layer: Layer,
        only_alloc: Optional[str],
        headroom: Callable[[Layer, str], int],
        refused: Optional[Set[int]] = None,
        host_frames_max: int = 0,
    ) -> Optional[Best]:
        """The fitting host of lowest score, the first in the snapshot among equals; None if no host fits.

        `only_alloc` narrows the search to an allocation. `headroom` gives the core points that caps leave the layer in
        one. Hosts of `refused` (indexes) and those that have `host_frames_max` frames of this tick (0: no such cap)
        leave the pool for good.
        """
        if layer.threadable and self._seen < len(self._moved) and (layer.selfish or self._takes_idle):
            self._catch_up()
        hosts = self._hosts
        settings = self._settings
        capped = bool(refused) or host_frames_max > 0
        weight_cores, weight_mem = settings.weight_cores, settings.weight_mem
        asked, ask_mem, ask_gpus, ask_gpu_mem = layer.cores_min, layer.mem_min, layer.gpus_min, layer.gpu_mem_min
        best_score = 0.0
        best_index = -1
        best_cores = 0
        best_core_term = best_mem_term = best_gpu_term = best_gpu_mem_term = 0.0
        for pk_alloc, classes in self._by_alloc.items():
            if only_alloc is not None and pk_alloc != only_alloc:
                continue
            room = headroom(layer, pk_alloc)
            if room < asked or room <= 0:
                continue
            for kind in classes:
                cores, mem = kind.cores, kind.mem
                if asked > cores or ask_mem > mem or ask_gpus > kind.gpus or ask_gpu_mem > kind.gpu_mem:
                    continue
                fixed = asked > 0 and kind.thread_mode == THREAD_AUTO and not layer.selfish
                ask_cores = asked
                mem_floor = term(weight_mem, 0, ask_mem, mem)
                emptied: List[LevelKey] = []
                # Moving stale entries may add levels; they lie behind the present one, where the loop still comes.
                for level in kind.keys:
                    idle_cores = -level[0]
                    if idle_cores < asked:
                        break
                    if -level[1] < ask_gpus or -level[2] < ask_gpu_mem:
                        continue
                    if not fixed:
                        ask_cores = cores_asked(layer, kind.thread_mode, cores, idle_cores, room)
                        if ask_cores == 0 or ask_cores > room:
                            continue
                    core_term = kind.core_terms.get((ask_cores, idle_cores))
                    if core_term is None:
                        core_term = term(weight_cores, cores - idle_cores, ask_cores, cores)
                        kind.core_terms[(ask_cores, idle_cores)] = core_term
                    if best_index >= 0 and (core_term + mem_floor) * MARGIN > best_score:
                        # With a fixed size the cost only rises from level to level.
                        if fixed:
                            break
                        continue
                    heap = kind.levels[level]
                    used_mem, index, version = heap[0]
                    if version != hosts[index].version or capped:
                        self._refresh(kind, heap, refused, host_frames_max)
                        if not heap:
                            emptied.append(level)
                            continue
                        used_mem, index, version = heap[0]
                    if used_mem + ask_mem > mem:
                        continue
                    mem_term = weight_mem * (exp((used_mem + ask_mem) / mem) - exp(used_mem / mem))
                    score = core_term + mem_term
                    gpu_term = gpu_mem_term = 0.0
                    if ask_gpus:
                        gpu_term = term(settings.weight_gpus, kind.gpus + level[1], ask_gpus, kind.gpus)
                        score += gpu_term
                    if ask_gpu_mem:
                        gpu_mem_term = term(settings.weight_gpu_mem, kind.gpu_mem + level[2], ask_gpu_mem, kind.gpu_mem)
                        score += gpu_mem_term
                    if best_index < 0 or score < best_score or (score == best_score and index < best_index):
                        best_score, best_index, best_cores = score, index, ask_cores
                        best_core_term, best_mem_term = core_term, mem_term
                        best_gpu_term, best_gpu_mem_term = gpu_term, gpu_mem_term
                for level in emptied:
                    kind.drop(level)
        if best_index < 0:
            return None
        terms = Terms(best_core_term, best_mem_term, best_gpu_term, best_gpu_mem_term)
        return Best(hosts[best_index], Ask(best_cores, ask_mem, ask_gpus, ask_gpu_mem), best_score, terms)

    def _catch_up(self) -> None:
        """Enter the hosts that took frames at their present levels.

        Where a frame takes whatever is idle its cost may fall as the host fills: an outdated entry is then no bound.
        """
        if self._indexes is None:
            self._indexes = {host.index for host in self.open}
        for index in sorted(self._indexes.intersection(self._moved[self._seen :])):
            host = self._hosts[index]
            self._classes[class_key(host)].push(host, self._gpu_frames)
        self._seen = len(self._moved)

    def _refresh(self, kind: HostClass, heap: List[Entry], refused: Optional[Set[int]], host_frames_max: int) -> None:
        """Drop closed hosts from the top of a level's heap and move those that changed, until the top holds."""
        while heap:
            _, index, version = heap[0]
            host = self._hosts[index]
            closed = (refused is not None and index in refused) or 0 < host_frames_max <= host.frames
            if version == host.version and not closed:
                return
            heappop(heap)
            if not closed:
                kind.push(host, self._gpu_frames)
