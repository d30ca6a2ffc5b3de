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

Entry = Tuple[int, int, int, float]  # memory in use, host index, host version, e^(share of memory in use)
LevelKey = Tuple[int, int, int]  # idle cores, gpus and gpu memory, negated: sorted order is most idle first
Level = Tuple[int, int, int, float, List[Entry]]  # the key, e^(share of cores in use), and a heap
ClassKey = Tuple[int, int, int, int, int, str]  # totals, thread mode, alloc

# Bounds are compared to scores that were summed in another order: a margin far above rounding, far below any real gap.
MARGIN = 1.0 - 1e-9

ROOMY = 200  # with more points than this a cap does not change what fits, whatever the thread mode
NEVER = 1 << 62


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

    __slots__ = ("core_floors", "cores", "gpu_mem", "gpus", "heaps", "levels", "mem", "mem_floors", "thread_mode")

    def __init__(self, host: Host) -> None:
        """`host` is one of the class."""
        self.cores, self.mem, self.gpus, self.gpu_mem = host.cores, host.mem, host.gpus, host.gpu_mem
        self.thread_mode = host.thread_mode
        self.levels: List[Level] = []  # sorted
        self.heaps: Dict[LevelKey, List[Entry]] = {}  # of the levels
        self.core_floors: Dict[int, float] = {}  # points asked -> the least that the score term can be
        self.mem_floors: Dict[int, float] = {}  # KiB asked -> the same

    def push(self, host: Host, gpu_frames: bool) -> None:
        """Enter the host at its present level, if it has anything left."""
        idle_cores, idle_mem = host.spare(gpu_frames)
        if idle_cores <= 0 or idle_mem <= 0:
            return
        key = (-idle_cores, -host.idle_gpus, -host.idle_gpu_mem)
        heap = self.heaps.get(key)
        if heap is None:
            self.heaps[key] = heap = []
            insort(self.levels, (*key, exp((self.cores - idle_cores) / self.cores), heap))
        used_mem = self.mem - idle_mem
        heappush(heap, (used_mem, host.index, host.version, exp(used_mem / self.mem)))

    def drop(self, level: Level) -> None:
        """Forget a level that has run empty."""
        if not level[4]:
            del self.heaps[level[:3]]
            self.levels.remove(level)


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
        self._dead: Dict[Tuple[object, ...], int] = {}  # kind of frame and alloc -> the least memory that fits nowhere
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
            class_of = class_key(host)
            kind = classes.get(class_of)
            if kind is None:
                classes[class_of] = kind = HostClass(host)
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
        shared: bool = True,
    ) -> Optional[Best]:
        """The fitting host of lowest score, the first in the snapshot among equals; None if no host fits.

        `only_alloc` narrows the search to an allocation. `headroom` gives the core points that caps leave the layer in
        one. Hosts of `refused` (indexes) are passed over; unless the pool is `shared` they leave it. Those that have
        `host_frames_max` frames of this tick (0: no such cap) leave the pool for good.
        """
        if self._dead and layer.mem_min >= self._dead.get(self._kind(layer, only_alloc), NEVER):
            return None
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
        best_core_term = best_mem_term = best_gpu_term = best_gpu_mem_term = gpu_term = gpu_mem_term = 0.0
        gpu_frame = ask_gpus > 0 or ask_gpu_mem > 0
        short = asked <= 0
        allocs = self._by_alloc if only_alloc is None else (only_alloc,)
        for pk_alloc in allocs:
            room = headroom(layer, pk_alloc)
            if room < asked or room <= ROOMY:
                short = True  # then it may be the caps that refuse
                if room < asked or room <= 0:
                    continue
            for kind in self._by_alloc.get(pk_alloc, ()):
                cores, mem = kind.cores, kind.mem
                if asked > cores or ask_mem > mem or ask_gpus > kind.gpus or ask_gpu_mem > kind.gpu_mem:
                    continue
                fixed = asked > 0 and kind.thread_mode == THREAD_AUTO and not layer.selfish
                ask_cores = asked
                mem_floor = kind.mem_floors.get(ask_mem, -1.0)
                if mem_floor < 0.0:
                    kind.mem_floors[ask_mem] = mem_floor = term(weight_mem, 0, ask_mem, mem)
                core_floor = kind.core_floors.get(asked, -1.0)
                if core_floor < 0.0:
                    kind.core_floors[asked] = core_floor = term(weight_cores, 0, asked, cores)
                emptied: List[Level] = []
                aside: Optional[List[int]] = [] if capped else None
                # Moving stale entries may add levels; they lie behind the present one, where the loop still comes.
                for level in kind.levels:
                    idle_cores = -level[0]
                    if idle_cores < asked:
                        break
                    if gpu_frame and (-level[1] < ask_gpus or -level[2] < ask_gpu_mem):
                        continue
                    if not fixed:
                        ask_cores = cores_asked(layer, kind.thread_mode, cores, idle_cores, room)
                        if ask_cores == 0 or ask_cores > room:
                            continue
                        core_floor = term(weight_cores, 0, ask_cores, cores)
                    core_term = core_floor * level[3]
                    if best_index >= 0 and (core_term + mem_floor) * MARGIN > best_score:
                        # With a fixed size the cost only rises from level to level.
                        if fixed:
                            break
                        continue
                    heap = level[4]
                    used_mem, index, version, mem_cost = heap[0]
                    if version != hosts[index].version or capped:
                        self._refresh(kind, heap, refused, host_frames_max, aside if shared else None)
                        if not heap:
                            emptied.append(level)
                            continue
                        used_mem, index, version, mem_cost = heap[0]
                    if used_mem + ask_mem > mem:
                        continue
                    mem_term = mem_floor * mem_cost
                    score = core_term + mem_term
                    if gpu_frame:
                        gpu_term = term(settings.weight_gpus, kind.gpus + level[1], ask_gpus, kind.gpus)
                        gpu_mem_term = term(settings.weight_gpu_mem, kind.gpu_mem + level[2], ask_gpu_mem, kind.gpu_mem)
                        score = score + gpu_term + gpu_mem_term
                    if best_index < 0 or score < best_score or (score == best_score and index < best_index):
                        best_score, best_index, best_cores = score, index, ask_cores
                        best_core_term, best_mem_term = core_term, mem_term
                        best_gpu_term, best_gpu_mem_term = gpu_term, gpu_mem_term
                for level in emptied:
                    kind.drop(level)
                if aside:
                    for index in aside:
                        kind.push(hosts[index], self._gpu_frames)
        if best_index < 0:
            if not (refused or short):
                key = self._kind(layer, only_alloc)
                self._dead[key] = min(self._dead.get(key, ask_mem), ask_mem)
            return None
        terms = Terms(best_core_term, best_mem_term, best_gpu_term, best_gpu_mem_term)
        return Best(hosts[best_index], Ask(best_cores, ask_mem, ask_gpus, ask_gpu_mem), best_score, terms)

    def hopeless(self, layer: Layer, only_alloc: Optional[str]) -> bool:
        """Whether it is known that no member has room for the layer's frame any more."""
        if self.most_cores < layer.cores_min:
            return True
        return bool(self._dead) and layer.mem_min >= self._dead.get(self._kind(layer, only_alloc), NEVER)

    @staticmethod
    def _kind(layer: Layer, only_alloc: Optional[str]) -> Tuple[object, ...]:
        """What frames have in common that differ in memory alone, and the allocation looked at."""
        return (only_alloc, layer.cores_min, layer.gpus_min, layer.gpu_mem_min, layer.threadable, layer.selfish)

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

    def _refresh(
        self, kind: HostClass, heap: List[Entry], refused: Optional[Set[int]], host_frames_max: int,
        aside: Optional[List[int]],
    ) -> None:  # fmt: skip
        """Drop closed hosts from the top of a level's heap and move those that changed, until the top holds.

        Refused hosts are dropped as well, and noted in `aside` for the caller to enter again.
        """
        while heap:
            _, index, version, _ = heap[0]
            host = self._hosts[index]
            passed = refused is not None and index in refused
            closed = 0 < host_frames_max <= host.frames
            if version == host.version and not closed and not passed:
                return
            heappop(heap)
            if closed:
                continue
            if passed:
                if aside is not None:
                    aside.append(index)
            else:
                kind.push(host, self._gpu_frames)
