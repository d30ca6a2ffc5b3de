"""Places frames, slot by slot: each slot goes to the layer whose turn it is, on the cheapest host that takes it.

Hosts are looked for in the pool that the layer shares with others, and beside it among the few hosts that have
something for this very layer (module near). Bonuses are fixed by what ran at the tick's start; seats count as they are
taken.
"""

from __future__ import annotations

from itertools import chain
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from planner.backfill import Holds
from planner.caps import Ledger
from planner.hold import wants_gpu
from planner.model import CACHE_WARM, COLD, LIVE_WARM, Ask, Host, Layer, Placement, Settings, State
from planner.near import Near, Rating, better
from planner.pool import NEVER, Best, Pool
from planner.score import score, terms
from planner.size import asked, takes_idle
from planner.sizing import SAMPLES_MIN, Sizes

LAYER_HOST_FRAMES_MIN = 8  # layer_host_max_frac never caps below this
PASSED_OVER_MAX = 64  # with more refused hosts a layer gets pools of its own, at the cost of a look at each open host

Members = Tuple[FrozenSet[int], Optional[FrozenSet[int]], bool]  # groups, hosts that tags name, wants gpus
NOWHERE: Mapping[str, int] = {}


class Work:
    """One layer's placing: where it looks, and what it may not use any more."""

    __slots__ = (
        "alone", "booked", "capped", "live", "near", "over", "parts", "plain", "refused", "seats", "seen", "warm",
    )  # fmt: skip

    def __init__(self, parts: List[Tuple[Layer, Pool]]) -> None:
        self.parts = parts  # the layer once a size, with a pool each
        self.plain = False  # one shared pool is all there is to look at
        self.alone = False  # the pools are its own
        self.near: Optional[Near] = None
        self.over: Optional[Near] = None  # hosts with the layer's share full, for when nothing else is left
        self.live: Mapping[str, int] = NOWHERE  # pk_host -> its frames that ran there at the tick's start
        self.warm: Mapping[str, int] = NOWHERE  # pk_host -> others' frames since the layer left
        self.booked: Dict[int, int] = {}  # host index -> its frames of this tick
        self.capped: Set[int] = set()  # hosts where the layer has its share
        self.refused: Set[int] = set()  # hosts that take no more of the job, or of this layer
        self.seats: Tuple[str, ...] = ()  # limits of type HOST
        self.seen = 0  # seats gained so far that it has looked at

    def part(self, host: Host) -> Optional[Layer]:
        """The layer in the size that it has on the host; None if it may not run there."""
        for layer, _ in self.parts:
            if host.group in layer.groups or (layer.pinned is not None and host.index in layer.pinned):
                return layer
        return None


class Placer:
    """One tick's placement."""

    def __init__(
        self, hosts: List[Host], sizes: Sizes, ledger: Ledger, settings: Settings, state: State, holds: Holds,
        shut: Set[int],
    ) -> None:  # fmt: skip
        """`shut`: indexes of hosts that take nothing in this tick. Held hosts (`holds`) are in no pool."""
        self.hosts = hosts
        self.layers = sizes.layers
        self.sizes = sizes
        self.settings = settings
        self.state = state
        self.ledger = ledger
        self.holds = holds
        self.placements: List[Placement] = []
        self.moved: List[int] = []  # hosts (indexes) of the placements
        self.waiting = [layer.waiting for layer in sizes.layers]
        for order, left in sizes.probing.items():
            self.waiting[order] = min(self.waiting[order], left)
        self.works: Dict[int, Work] = {}
        self._shut = shut
        self._closed = shut | set(holds.by_host)
        self.by_group: Dict[int, List[Host]] = {}
        for host in hosts:
            self.by_group.setdefault(host.group, []).append(host)
        self._shared: Dict[Members, Pool] = {}
        self._plain: Dict[FrozenSet[int], Pool] = {}  # of those the pools without pins and gpus, by groups
        self._open: Optional[Dict[str, Host]] = None
        self._alloc_sets: Dict[Tuple[FrozenSet[int], Optional[FrozenSet[int]]], Tuple[str, ...]] = {}
        self._least = (0, 0)  # core points and KiB of the smallest frame that competes, or less
        self._roomy_hosts = 0  # those with room for it
        self._job_frames: Dict[Tuple[str, int], int] = {}  # (job, host index) -> frames of this tick
        self._job_refused: Dict[str, Set[int]] = {}
        self._job_works: Dict[str, List[Work]] = {}

    def close(self) -> None:
        """Undo what refers back to itself, so that the plan's data is freed at once, without a collector's walk through
        all of it."""
        for work in self.works.values():
            work.near = work.over = None

    def compete(self, orders: List[int]) -> None:
        """Say which layers there are to place, so that the placer sees when no host has room for any of them."""
        parts = [part for order in orders for part in self.sizes.variants.get(order) or (self.layers[order],)]
        self._least = cores, mem = (
            max(1, min((part.cores_min for part in parts), default=1)), min((part.mem_min for part in parts), default=0)
        )  # fmt: skip
        self._roomy_hosts = sum(
            1 for host in self.hosts
            if host.idle_cores >= cores and host.idle_mem >= mem and host.index not in self._shut
        )  # fmt: skip

    def full(self) -> bool:
        """Whether no host has room for the smallest frame: whoever's turn it is finds none."""
        return not self._roomy_hosts

    def allocs(self, layer: Layer) -> Tuple[str, ...]:
        """The allocations of the hosts that the layer may use, sorted; found once for layers of equal hosts."""
        key = (layer.groups, layer.pinned)
        found = self._alloc_sets.get(key)
        if found is None:
            names = {self.by_group[group][0].pk_alloc for group in layer.groups if group in self.by_group}
            names |= {self.hosts[index].pk_alloc for index in layer.pinned or ()}
            self._alloc_sets[key] = found = tuple(sorted(names))
        return found

    def members(self, layer: Layer) -> Iterator[Host]:
        """The hosts that the layer's groups and pins allow and that are open to all, each once."""
        closed = self._closed
        for group in sorted(layer.groups):
            for host in self.by_group.get(group, ()):
                if host.index not in closed:
                    yield host
        for index in sorted(layer.pinned or ()):
            if self.hosts[index].group not in layer.groups and index not in closed:
                yield self.hosts[index]

    def pool(self, layer: Layer) -> Pool:
        """The pool that the layer shares with layers of the same hosts."""
        gpus = wants_gpu(layer)
        plain = layer.pinned is None and not gpus
        pool = self._plain.get(layer.groups) if plain else None
        if pool is None:
            key = (layer.groups, layer.pinned, gpus)
            pool = self._shared.get(key)
            if pool is None:
                self._shared[key] = pool = Pool(self.hosts, self.members(layer), self.settings, gpus, self.moved)
            if plain:
                self._plain[layer.groups] = pool
        return pool

    def best(self, layer: Layer, pk_alloc: Optional[str]) -> Optional[Best]:
        """Where in the allocation (None: anywhere) the layer's next frame goes; None if no host takes it any more."""
        if not self.ledger.allows(layer):
            return None
        work = self.works.get(layer.order)
        if work is None:
            if self._hopeless(layer, pk_alloc):
                return None
            work = self._start(layer)
        elif work.plain:
            return work.parts[0][1].best(layer, pk_alloc, self.ledger.headroom)
        near = work.near
        found: Optional[Best] = None
        if near is not None:
            if work.seats:
                self._catch_up(work)
            found = self._offer(work, near.best(pk_alloc))
        # Without a bonus no score is below 0: then the pool has nothing better.
        if (found is None or found.score >= 0.0) and (not work.seats or self._seats_left(work)):
            host_max = self.settings.host_frame_dispatch_max
            headroom = self.ledger.headroom
            for part, pool in work.parts:
                offer = pool.best(part, pk_alloc, headroom, work.refused, host_max, not work.alone)
                if offer is not None:
                    found = better(found, offer)
        if found is None and work.over is not None:
            return self._offer(work, work.over.best(pk_alloc))
        return found

    def _seats_left(self, work: Work) -> bool:
        return not any(self.ledger.seats.spent(limit) for limit in work.seats)

    def _hopeless(self, layer: Layer, pk_alloc: Optional[str]) -> bool:
        """Whether no host has room, as is known without a look at any: the layer costs the tick next to nothing."""
        if self.holds.by_host and (layer.order in self.holds.by_owner or self.holds.borrower(layer)):
            return False
        return layer.order not in self.sizes.variants and self.pool(layer).hopeless(layer, pk_alloc)

    def _start(self, layer: Layer) -> Work:
        """Set up the layer's placing: its pools, and the hosts that have something for it."""
        work = Work([(part, self.pool(part)) for part in self.sizes.variants.get(layer.order, [layer])])
        self.works[layer.order] = work
        state, settings = self.state, self.settings
        work.live = state.live.get(layer.pk_layer, NOWHERE)
        work.warm = state.warm.get(layer.pk_layer, NOWHERE)
        work.seats = self.ledger.seat_limits(layer)
        own: List[Iterable[str]] = [self.ledger.seats.holders(limit) for limit in work.seats]
        if settings.locality_enabled:
            own += (work.live, work.warm)
        indexes = self._roomy(work, chain.from_iterable(own))
        work.seen = len(self.ledger.seats.gained)
        indexes.update(self.holds.by_owner.get(layer.order, ()))
        if self.holds.borrower(layer):
            indexes.update(self.holds.open)
        if settings.job_frame_dispatch_max:
            self._job_works.setdefault(layer.pk_job, []).append(work)
            for index in self._job_refused.get(layer.pk_job, ()):
                self._refuse(work, index)
        if settings.layer_host_max_frac:
            for pk_host, frames in work.live.items():
                if frames >= LAYER_HOST_FRAMES_MIN and pk_host in self._opened():
                    self._cap(work, self._opened()[pk_host])
        if indexes or work.seats:
            work.near = Near(
                self.hosts,
                lambda index: self._rate(work, index),
                lambda index, cores: self._holds(work, index, cores),
            )
            self._enter(work, work.near, sorted(indexes))
        work.plain = work.near is None and len(work.parts) == 1 and not (
            work.refused or settings.host_frame_dispatch_max
        )  # fmt: skip
        return work

    def _opened(self) -> Dict[str, Host]:
        """By pk_host: the hosts with anything left when it is first asked for."""
        if self._open is None:
            self._open = {
                host.pk_host: host
                for host in self.hosts
                if host.idle_cores > 0 and host.idle_mem > 0 and host.index not in self._shut
            }
        return self._open

    def _roomy(self, work: Work, pk_hosts: Iterable[str]) -> Set[int]:
        """The indexes of those hosts that have room for a frame of the layer in its least size; idle only falls, so the
        others never have."""
        least = work.parts[0][0]
        cores, mem = least.cores_min, least.mem_min
        for part, _ in work.parts[1:]:
            cores, mem = min(cores, part.cores_min), min(mem, part.mem_min)
        found = set()
        opened = self._opened()
        for pk_host in pk_hosts:
            host = opened.get(pk_host)
            if host is not None and host.idle_cores >= cores and host.idle_mem >= mem:
                found.add(host.index)
        return found

    def _enter(self, work: Work, near: Near, indexes: Iterable[int]) -> None:
        for index in indexes:
            part = work.part(self.hosts[index])
            if part is not None:
                near.add(index, takes_idle(part, self.hosts[index].thread_mode))

    def _catch_up(self, work: Work) -> None:
        """Enter the hosts that gained a seat since the layer's last turn."""
        gained = self.ledger.seats.gained
        if work.seen < len(gained):
            fresh = sorted(set(gained[work.seen :]))
            work.seen = len(gained)
            if work.near is not None:
                self._enter(work, work.near, fresh)
            if work.over is not None:
                self._enter(work, work.over, [index for index in fresh if index in work.capped])

    def _rate(self, work: Work, index: int, over: bool = False) -> Optional[Rating]:
        """What a host offers the layer now, bonuses counted; None if it takes no frame of it.

        `over`: the layer's share of the host is no bar.
        """
        host = self.hosts[index]
        settings = self.settings
        # Only hosts that the layer may use are ever entered.
        part = work.parts[0][0] if len(work.parts) == 1 else work.part(host)
        if part is None or part.mem_min > host.idle_mem or part.cores_min > host.idle_cores:
            return None  # of all that follows the commonest, and the cheapest to see
        if index in self._shut or (index in work.refused and not (over and index in work.capped)):
            return None
        if 0 < settings.host_frame_dispatch_max <= host.frames:
            return None
        if self.holds.by_host and not self.holds.admits(part, host):
            return None
        if over and index in self._job_refused.get(part.pk_job, ()):
            return None
        if work.seats and not self.ledger.seats.admits(work.seats, host):
            return None
        ask = asked(part, host, self.ledger.headroom(part, host.pk_alloc))
        if ask is None:
            return None
        return score(host, ask, settings, self._locality(work, host), self._seat(work, host)), index, ask.cores

    def _offer(self, work: Work, rating: Optional[Rating]) -> Optional[Best]:
        """A rating as what may be booked."""
        if rating is None:
            return None
        value, index, cores = rating
        host = self.hosts[index]
        part = work.part(host)
        if part is None:
            return None
        ask = Ask(cores, part.mem_min, part.gpus_min, part.gpu_mem_min)
        parts = terms(host, ask, self.settings, self._locality(work, host), self._seat(work, host))
        return Best(host, ask, value, parts)

    def _holds(self, work: Work, index: int, cores: int) -> bool:
        """Whether an offer stands for certain while its host has not changed."""
        if work.seats or index in work.refused:
            return False
        return cores <= self.ledger.headroom(work.parts[0][0], self.hosts[index].pk_alloc)

    def _locality(self, work: Work, host: Host) -> float:
        """The bonus for data that the layer has, or had lately, on the host."""
        settings = self.settings
        if not settings.locality_enabled:
            return 0.0
        if host.pk_host in work.live:
            return settings.locality_bonus
        foreign = work.warm.get(host.pk_host)
        if foreign is None or foreign >= settings.locality_window_frames:
            return 0.0
        return settings.locality_bonus * (1 - foreign / settings.locality_window_frames)

    def _seat(self, work: Work, host: Host) -> float:
        """The bonus for limits of type HOST in which the host holds a seat."""
        if not work.seats:
            return 0.0
        return self.settings.host_limit_seat_bonus * self.ledger.seats.held(work.seats, host)

    def book(self, layer: Layer, best: Best) -> None:
        """Take the slot: host, caps and the layer's backlog."""
        host, ask = best.host, best.ask
        index = host.index
        host.take(ask)
        if host.idle_cores < self._least[0] or host.idle_mem < self._least[1]:
            self._roomy_hosts -= 1
        self.moved.append(index)
        self.ledger.spend(layer, host, ask)
        self.waiting[layer.order] -= 1
        work = self.works[layer.order]
        warmth = self._warmth(work, host)
        backfill = bool(self.holds.by_host) and self.holds.borrowed(layer, index)
        self.placements.append(Placement(layer.order, index, ask, best.score, best.terms, warmth, backfill))
        if self.settings.layer_host_max_frac:
            work.booked[index] = work.booked.get(index, 0) + 1
            if work.booked[index] + work.live.get(host.pk_host, 0) >= LAYER_HOST_FRAMES_MIN:
                self._cap(work, host)
        cap = self.settings.job_frame_dispatch_max
        if cap:
            key = (layer.pk_job, index)
            self._job_frames[key] = self._job_frames.get(key, 0) + 1
            if self._job_frames[key] == cap:
                self._job_refused.setdefault(layer.pk_job, set()).add(index)
                for other in self._job_works[layer.pk_job]:
                    self._refuse(other, index)

    def _warmth(self, work: Work, host: Host) -> str:
        """What the layer has of its data on the host."""
        if host.pk_host in work.live:
            return LIVE_WARM
        return CACHE_WARM if work.warm.get(host.pk_host, NEVER) < self.settings.locality_window_frames else COLD

    def host_share(self, part: Layer, host: Host) -> int:
        """How many frames of a layer the host runs at once under layer_host_max_frac."""
        cores = part.cores_min if part.cores_min > 0 else host.cores
        return max(LAYER_HOST_FRAMES_MIN, int(self.settings.layer_host_max_frac * host.cores / cores))

    def _cap(self, work: Work, host: Host) -> None:
        """See whether the layer has its share of the host; if so the host leaves its pools.

        The cap yields for a layer whose memory is proven: where nothing else is left it takes such a host after all.
        """
        part = work.part(host)
        frames = work.live.get(host.pk_host, 0) + work.booked.get(host.index, 0)
        if part is None or host.index in work.capped or frames < self.host_share(part, host):
            return
        work.capped.add(host.index)
        self._refuse(work, host.index)
        peaks = self.state.peaks.get(part.pk_layer)
        if peaks is not None and peaks.samples >= SAMPLES_MIN:
            if work.over is None:
                work.over = Near(self.hosts, lambda index: self._rate(work, index, True))
            self._enter(work, work.over, [host.index])

    def _refuse(self, work: Work, index: int) -> None:
        """The host takes no more of the layer."""
        work.refused.add(index)
        work.plain = False
        if len(work.refused) > PASSED_OVER_MAX and not work.alone:
            work.alone = True
            # Hosts that ran full since the shared pool was made leave by themselves.
            work.parts = [
                (part, Pool(self.hosts, pool.open, self.settings, wants_gpu(part), self.moved))
                for part, pool in work.parts
            ]
