"""Why a layer waits: one bucket and all reasons, each with the hosts that it rules out (reference section 3.8)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Dict, FrozenSet, List, Optional, Tuple

from planner.hold import wants_gpu
from planner.model import Host, Layer, Reason, Wait
from planner.pins import HOST_GATES
from planner.place import Placer
from planner.size import asked, fits_empty

# Buckets in order of precedence: the first that holds names the layer's bucket.
FLOWING, HELD, NO_LICENSE, LIMIT, NO_HOST, CAPACITY, NO_FIT = (
    "flowing", "held", "no_license", "limit", "no_host", "capacity", "no_fit",
)  # fmt: skip
BUCKETS = (FLOWING, CAPACITY, NO_FIT, LIMIT, NO_LICENSE, HELD, NO_HOST)

# Gates by the bucket that they fall in; those that begin with these words are `no_host`, others not named `limit`.
GATE_BUCKETS = {"limit": NO_LICENSE}
NO_HOST_GATES = (*HOST_GATES, "no host", "host ", "wrong ")

BOOKED = Wait(FLOWING, (Reason("flowing", 0),))

Members = Tuple[FrozenSet[int], Optional[FrozenSet[int]]]
Room = Tuple[str, Tuple[Reason, ...]]  # bucket, reasons


class Reach:
    """The hosts that some layers may use, counted so that a shape's reasons cost no look at each host."""

    def __init__(self, hosts: List[Host], placer: Placer, gpu_frames: bool) -> None:
        state, held, settings = placer.state, placer.holds.by_host, placer.settings
        self.hosts = hosts
        self.allocs: Dict[str, int] = {}
        classes: Dict[Tuple[int, int, int, int], Host] = {}
        self.classes: Dict[Tuple[int, int, int, int], int] = {}  # totals -> hosts
        cores, mem, gpus, gpu_mem = [], [], [], []
        self.idle = 0  # points that are open to all
        self.short = self.full = self.busy = 0
        self.held: List[Host] = []
        self.kept: List[Host] = []  # something there waits for gpu frames
        for host in hosts:
            self.allocs[host.pk_alloc] = self.allocs.get(host.pk_alloc, 0) + 1
            totals = (host.cores, host.mem, host.gpus, host.gpu_mem)
            self.classes[totals] = self.classes.get(totals, 0) + 1
            classes.setdefault(totals, host)
            spare = host.spare(gpu_frames)
            cores.append(spare[0])
            mem.append(spare[1])
            gpus.append(host.idle_gpus)
            gpu_mem.append(host.idle_gpu_mem)
            self.busy += spare[0] < host.cores
            if host.index in held:
                self.held.append(host)
            elif state.short_mem and host.pk_host in state.short_mem:
                self.short += 1
            else:
                self.idle += spare[0]
                if spare != (host.idle_cores, host.idle_mem):
                    self.kept.append(host)
            self.full += 0 < settings.host_frame_dispatch_max <= host.frames
        self.samples = list(classes.values())  # one host a class
        for values in (cores, mem, gpus, gpu_mem):
            values.sort()
        self.cores, self.mem, self.gpus, self.gpu_mem = cores, mem, gpus, gpu_mem


class Waits:
    """Names reasons from the state at the tick's end; make it after the last placement."""

    def __init__(self, placer: Placer, layers: List[Layer], weighed: List[Layer], late: bool) -> None:
        """`layers` as the tick got them, `weighed` with their groups cut; `late`: the tick ran out of time."""
        self._placer = placer
        self._layers = layers
        self._weighed = weighed
        self._late = late
        self._by_group: Dict[int, List[Host]] = {}
        for host in placer.hosts:
            self._by_group.setdefault(host.group, []).append(host)
        self._reaches: Dict[Tuple[Members, bool], Reach] = {}
        self._rooms: Dict[Tuple[object, ...], Wait] = {}
        self._bursts: Dict[Tuple[str, Members], List[Tuple[int, int]]] = {}

    def all(self) -> Dict[int, Wait]:
        """The layers that have frames left, by order."""
        booked: Dict[int, int] = {}
        for placement in self._placer.placements:
            booked[placement.layer] = booked.get(placement.layer, 0) + 1
        found = {}
        for layer in self._layers:
            placed = booked.get(layer.order, 0)
            if placed < layer.waiting:
                found[layer.order] = BOOKED if placed else self._blocked(layer)
        return found

    def _blocked(self, layer: Layer) -> Wait:
        """Bucket and reasons of a layer that booked nothing."""
        if layer.gates:
            return self._gated(layer)
        if not layer.groups and not layer.pinned:
            return Wait(NO_HOST, (Reason("no host", len(self._placer.hosts)), *map(Reason._make, layer.misfits)))
        placer = self._placer
        weighed = self._weighed[layer.order]
        seen = weighed if weighed.groups or weighed.pinned else layer
        sized = placer.layers[layer.order]
        room = self._room(seen, sized)
        firsts, bucket = self._capped(seen, sized)
        if weighed is not layer:
            missed = sum(len(self._by_group.get(group, ())) for group in layer.groups - weighed.groups)
            firsts.append(Reason("beyond layer_candidates_per_group_max", missed))
            if seen is layer and room.reason == NO_FIT:
                bucket = bucket or LIMIT
        if self._late:
            firsts.append(Reason("tick_budget_ms", self._count(seen)))
            bucket = bucket or LIMIT
        if placer.sizes.probing and placer.sizes.probing.get(layer.order) == 0:
            firsts.append(Reason("memory probe", self._count(seen)))
            bucket = bucket or LIMIT
        if not firsts and not layer.misfits:
            return room
        return Wait(bucket or room.reason, (*firsts, *room.reasons, *map(Reason._make, layer.misfits)))

    def _count(self, layer: Layer) -> int:
        """How many hosts the layer may use."""
        return len(self._reach(layer, wants_gpu(layer)).hosts)

    def _gated(self, layer: Layer) -> Wait:
        everywhere = len(self._placer.hosts)
        reasons = [Reason(gate, everywhere) for gate in layer.gates]
        first = layer.gates[0]
        bucket = GATE_BUCKETS.get(first, NO_HOST if first.startswith(NO_HOST_GATES) else LIMIT)
        if "tags" in layer.gates:  # neither a tag that hosts have nor the name of one
            reasons.insert(0, Reason("no host", everywhere))
        told = set(layer.gates)
        return Wait(bucket, (*reasons, *(Reason(*misfit) for misfit in layer.misfits if misfit[0] not in told)))

    def _capped(self, seen: Layer, sized: Layer) -> Tuple[List[Reason], str]:
        """What caps refuse: reasons and the bucket, empty if some host could still be had."""
        placer = self._placer
        refusals = placer.ledger.refusals(sized)
        found: List[Reason] = []
        bucket = ""
        if refusals:
            hosts = self._count(seen)
            found.extend(Reason(cap, hosts) for cap in refusals)
            bucket = NO_LICENSE if all(cap.startswith("limit ") for cap in refusals) else LIMIT
        for cap, holding in placer.ledger.spent_seats(sized):
            found.append(Reason(cap, max(0, self._count(seen) - holding)))
            bucket = bucket or NO_LICENSE
        least = max(sized.cores_min, 1)
        rooms = self._burst(seen, sized.pk_show)
        if least > rooms[0][0]:
            found.append(Reason("subscription burst", sum(count for room, count in rooms if room < least)))
            if least > rooms[-1][0]:
                bucket = bucket or LIMIT
        work = placer.works.get(sized.order)
        if work is not None and work.refused:
            if work.over is None and work.capped:
                found.append(Reason("layer_host_max_frac", len(work.capped)))
            if len(work.refused) > len(work.capped):
                found.append(Reason("job_frame_dispatch_max", len(work.refused) - len(work.capped)))
            if found and not bucket and any(self._would_fit(sized, index) for index in work.refused):
                bucket = LIMIT
        return found, bucket

    def _would_fit(self, layer: Layer, index: int) -> bool:
        host = self._placer.hosts[index]
        return asked(layer, host, self._placer.ledger.headroom(layer, host.pk_alloc)) is not None

    def _burst(self, layer: Layer, pk_show: str) -> List[Tuple[int, int]]:
        """Room under the show's burst, and hosts, for each allocation that the layer may use; least room first."""
        key = (pk_show, (layer.groups, layer.pinned))
        rooms = self._bursts.get(key)
        if rooms is None:
            allocs = self._reach(layer, wants_gpu(layer)).allocs
            ledger = self._placer.ledger
            rooms = sorted((ledger.burst_room(pk_show, name), count) for name, count in allocs.items())
            self._bursts[key] = rooms = rooms or [(1 << 62, 0)]
        return rooms

    def _reach(self, layer: Layer, gpu_frames: bool) -> Reach:
        key = ((layer.groups, layer.pinned), gpu_frames)
        reach = self._reaches.get(key)
        if reach is None:
            hosts = [host for group in sorted(layer.groups) for host in self._by_group.get(group, ())]
            for index in sorted(layer.pinned or ()):
                if self._placer.hosts[index].group not in layer.groups:
                    hosts.append(self._placer.hosts[index])
            self._reaches[key] = reach = Reach(hosts, self._placer, gpu_frames)
        return reach

    def _room(self, seen: Layer, sized: Layer) -> Wait:
        """Bucket and reasons as far as room on hosts goes; found once for layers of equal hosts and size."""
        owns = seen.order if seen.order in self._placer.holds.by_owner else -1
        key = (
            seen.groups, seen.pinned, sized.cores_min, sized.mem_min, sized.gpus_min, sized.gpu_mem_min, owns,
        )  # fmt: skip
        wait = self._rooms.get(key)
        if wait is None:
            self._rooms[key] = wait = self._look(seen, sized)
        return wait

    def _look(self, seen: Layer, sized: Layer) -> Wait:
        reach = self._reach(seen, wants_gpu(sized))
        least = max(sized.cores_min, 1)
        own = set(self._placer.holds.by_owner.get(seen.order, ()))
        small = [host for host in reach.samples if not fits_empty(sized, host)]
        small_hosts = sum(reach.classes[host.cores, host.mem, host.gpus, host.gpu_mem] for host in small)
        others = [host for host in reach.held if host.index not in own]
        causes = (
            ("host too small", small_hosts),
            ("idle cores", bisect_left(reach.cores, least) if sized.cores_min > 0 else reach.busy),
            ("idle memory", bisect_left(reach.mem, sized.mem_min)),
            ("idle gpus", bisect_left(reach.gpus, sized.gpus_min) if sized.gpus_min else 0),
            ("idle gpu memory", bisect_left(reach.gpu_mem, sized.gpu_mem_min) if sized.gpu_mem_min else 0),
            ("reserved for another layer", len(others)),
            ("kept for gpu frames", len(reach.kept)),
            ("host short of memory", reach.short),
            ("host_frame_dispatch_max", reach.full),
        )
        reasons = tuple(Reason(cause, hosts) for cause, hosts in causes if hosts)
        if len(small) == len(reach.samples):
            return Wait(NO_HOST, reasons or (Reason("no host", len(self._placer.hosts)),))
        if self._held_back(sized, others, reach.kept):
            return Wait(HELD, reasons)
        if reach.idle < least:
            return Wait(CAPACITY, reasons or (Reason("farm is full", len(reach.hosts)),))
        return Wait(NO_FIT, reasons or (Reason("no host has room for one frame", len(reach.hosts)),))

    @staticmethod
    def _held_back(layer: Layer, held: List[Host], kept: List[Host]) -> bool:
        """Whether a host that is held would take a frame now."""
        for host in held + kept:
            cores = layer.cores_min if layer.cores_min > 0 else host.cores
            if (
                cores <= host.idle_cores and layer.mem_min <= host.idle_mem
                and layer.gpus_min <= host.idle_gpus and layer.gpu_mem_min <= host.idle_gpu_mem
            ):  # fmt: skip
                return True
        return False
