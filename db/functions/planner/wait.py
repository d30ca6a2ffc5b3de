"""Why a layer waits: one bucket and all reasons, each with the hosts that it rules out (reference section 3.8)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Dict, FrozenSet, List, Optional, Set, Tuple

from planner.hold import wants_gpu
from planner.model import Host, Layer, Reason, Wait
from planner.pins import HOST_GATES
from planner.place import Placer
from planner.size import asked

# Buckets in order of precedence: the first that holds names the layer's bucket.
FLOWING, HELD, NO_LICENSE, LIMIT, NO_HOST, CAPACITY, NO_FIT = (
    "flowing", "held", "no_license", "limit", "no_host", "capacity", "no_fit",
)  # fmt: skip
BUCKETS = (FLOWING, CAPACITY, NO_FIT, LIMIT, NO_LICENSE, HELD, NO_HOST)

# Gates by the bucket that they fall in; those that begin with these words are `no_host`, others not named `limit`.
GATE_BUCKETS = {"limit": NO_LICENSE}
NO_HOST_GATES = (*HOST_GATES, "no host", "host ", "wrong ")

# What rules hosts out, in the order of Waits._look's counts; each is counted by itself.
CAUSES = (
    "host too small", "idle cores", "idle memory", "idle gpus", "idle gpu memory", "reserved for another layer",
    "kept for gpu frames", "host short of memory", "host_frame_dispatch_max", "refused by the host",
)  # fmt: skip
# When no cause alone rules a host out.
NONE_ALONE = {
    NO_HOST: "no host", HELD: "no host has room for one frame", CAPACITY: "farm is full",
    NO_FIT: "no host has room for one frame",
}  # fmt: skip
BEYOND = "beyond layer_candidates_per_group_max"

BOOKED = Wait(FLOWING, (Reason("flowing", 0),))

Members = Tuple[FrozenSet[int], Optional[FrozenSet[int]], bool]  # groups, hosts that tags name, wants gpus


def rounded(count: int, whole: int) -> int:
    """A count of hosts, of `whole`, that lack something now: in two digits unless it is below 100 or all of them."""
    if count < 100 or count == whole:
        return count
    step = int("1" + "0" * (len(str(count)) - 2))
    return count // step * step


def distinct_counts(whole: int) -> List[int]:
    """The counts of 1 to `whole` that `rounded` leaves as they are."""
    counts = list(range(1, min(whole, 99) + 1))
    step = 10
    while step * 10 <= whole:
        counts.extend(range(step * 10, min(whole, step * 100 - 1) + 1, step))
        step *= 10
    if counts and counts[-1] != whole:
        counts.append(whole)
    return counts


class Reach:
    """The hosts that some layers may use, counted so that a shape's reasons cost no look at each host."""

    def __init__(self, hosts: List[Host], placer: Placer, gpu_frames: bool) -> None:
        state, held, settings = placer.state, placer.holds.by_host, placer.settings
        self.hosts = hosts
        cores, mem, gpus, gpu_mem = [], [], [], []
        self.idle = 0  # points that are open to all
        self.short = self.full = self.busy = 0
        self.refusing: List[int] = []  # points that hosts refused
        self.held: List[Host] = []
        self.kept: List[Host] = []  # something there waits for gpu frames
        self.allocs = Counter(host.pk_alloc for host in hosts)
        # Totals -> hosts.
        self.classes = Counter((host.cores, host.mem, host.gpus, host.gpu_mem) for host in hosts)
        for host in hosts:
            spare = host.spare(gpu_frames)
            cores.append(spare[0])
            mem.append(spare[1])
            gpus.append(host.idle_gpus)
            gpu_mem.append(host.idle_gpu_mem)
            self.busy += spare[0] < host.cores
            if host.refused:
                self.refusing.append(host.refused)
            if host.index in held:
                self.held.append(host)
            elif state.short_mem and host.pk_host in state.short_mem:
                self.short += 1
            else:
                self.idle += spare[0]
                if spare != (host.idle_cores, host.idle_mem):
                    self.kept.append(host)
            self.full += 0 < settings.host_frame_dispatch_max <= host.frames
        for values in (cores, mem, gpus, gpu_mem):
            values.sort()
        self.cores, self.mem, self.gpus, self.gpu_mem = cores, mem, gpus, gpu_mem
        self.rooms: Dict[Tuple[int, int, int, int, int], Wait] = {}  # by shape
        self.bursts: Dict[str, List[Tuple[int, int]]] = {}  # pk_show -> room under its burst, and hosts; least first
        steps = {mem[count - 1] for count in distinct_counts(len(hosts))}
        self._steps = sorted(steps.union(totals[1] for totals in self.classes))

    def class_of(self, mem: int) -> int:
        """A number that asks of so much memory share if every count of hosts is the same for them.

        Almost every layer asks for an amount of its own; their reasons are few.
        """
        return mem if self.held or self.kept else bisect_left(self._steps, mem)


class Waits:
    """Names reasons from the state at the tick's end; make it after the last placement."""

    def __init__(
        self, placer: Placer, layers: List[Layer], weighed: List[Layer], out: Set[int], late: bool
    ) -> None:
        """`layers` as the tick got them, `weighed` with their groups cut and `out` those that lost all of them;
        `late`: the tick ran out of time."""
        self._out = out
        self._beyond: Dict[Wait, Wait] = {}
        self._placer = placer
        self._layers = layers
        self._weighed = weighed
        self._late = late
        self._by_group = placer.by_group
        self._reaches: Dict[Members, Reach] = {}
        self._named: Dict[Tuple[object, ...], Wait] = {}
        self._usual = not late and not placer.sizes.probing
        self._last: Optional[Tuple[FrozenSet[int], Reach]] = None  # of layers without pins and gpus

    def all(self) -> Dict[int, Wait]:
        """The layers that have frames left, by order."""
        booked = Counter(placement.layer for placement in self._placer.placements)
        found = {}
        for layer in self._layers:
            placed = booked.get(layer.order, 0)  # [] would call Counter's __missing__
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
        order = layer.order
        sized = placer.layers[order]
        seen = self._weighed[order]
        reach = self._reach(seen)
        room = self._room(reach, sized)
        if self._uncapped(reach, sized):
            if seen is layer and self._usual and order not in self._out and not layer.misfits:
                return room
            firsts: List[Reason] = []
            bucket = ""
        else:
            firsts, bucket = self._capped(reach, sized)
        if order in self._out:
            if not firsts and not layer.misfits:
                return self._beyond_cut(room, reach)
            firsts.append(Reason(BEYOND, len(reach.hosts)))
        elif seen is not layer:
            missed = sum(len(self._by_group.get(group, ())) for group in layer.groups - seen.groups)
            firsts.append(Reason(BEYOND, missed))
        if self._late:
            firsts.append(Reason("tick_budget_ms", len(reach.hosts)))
            bucket = bucket or LIMIT
        if placer.sizes.probing and placer.sizes.probing.get(order) == 0:
            firsts.append(Reason("memory probe", len(reach.hosts)))
            bucket = bucket or LIMIT
        if not firsts and not layer.misfits:
            return room
        lacks = room.reasons
        if firsts and lacks[0].reason in NONE_ALONE.values():
            lacks = ()
        return Wait(bucket or room.reason, (*firsts, *lacks, *map(Reason._make, layer.misfits)))

    def _beyond_cut(self, room: Wait, reach: Reach) -> Wait:
        """Of a layer that the cut alone keeps from what the farm has; found once for equal rooms."""
        wait = self._beyond.get(room)
        if wait is None:
            reasons = (Reason(BEYOND, len(reach.hosts)), *room.reasons)
            self._beyond[room] = wait = Wait(LIMIT if room.reason == NO_FIT else room.reason, reasons)
        return wait

    def _gated(self, layer: Layer) -> Wait:
        everywhere = len(self._placer.hosts)
        reasons = [Reason(gate, everywhere) for gate in layer.gates]
        first = layer.gates[0]
        bucket = GATE_BUCKETS.get(first, NO_HOST if first.startswith(NO_HOST_GATES) else LIMIT)
        if "tags" in layer.gates:  # neither a tag that hosts have nor the name of one
            reasons.insert(0, Reason("no host", everywhere))
        told = set(layer.gates)
        return Wait(bucket, (*reasons, *(Reason(*misfit) for misfit in layer.misfits if misfit[0] not in told)))

    def _uncapped(self, reach: Reach, sized: Layer) -> bool:
        """Whether `_capped` would find nothing, at a fraction of its cost."""
        rooms = reach.bursts.get(sized.pk_show) or self._burst(reach, sized.pk_show)
        if sized.cores_min > rooms[0][0] or rooms[0][0] < 1:
            return False
        work = self._placer.works.get(sized.order)
        return (work is None or not work.refused) and self._placer.ledger.admits(sized)

    def _capped(self, reach: Reach, sized: Layer) -> Tuple[List[Reason], str]:
        """What caps refuse: reasons and the bucket, empty if some host could still be had."""
        placer = self._placer
        found: List[Reason] = []
        bucket = ""
        least = sized.cores_min if sized.cores_min > 0 else 1
        rooms = reach.bursts[sized.pk_show]
        work = placer.works.get(sized.order)
        refusals = placer.ledger.refusals(sized)
        if refusals:
            found.extend(Reason(cap, len(reach.hosts)) for cap in refusals)
            bucket = NO_LICENSE if all(cap.startswith("limit ") for cap in refusals) else LIMIT
        for cap, holding in placer.ledger.spent_seats(sized):
            found.append(Reason(cap, max(0, len(reach.hosts) - holding)))
            bucket = bucket or NO_LICENSE
        if least > rooms[0][0]:
            found.append(Reason("subscription burst", sum(count for room, count in rooms if room < least)))
            if least > rooms[-1][0]:
                bucket = bucket or LIMIT
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

    def _burst(self, reach: Reach, pk_show: str) -> List[Tuple[int, int]]:
        """Room under the show's burst, and hosts, for each allocation within reach; least room first."""
        ledger = self._placer.ledger
        rooms = sorted((ledger.burst_room(pk_show, name), count) for name, count in reach.allocs.items())
        reach.bursts[pk_show] = rooms = rooms or [(1 << 62, 0)]
        return rooms

    def _reach(self, layer: Layer) -> Reach:
        gpus = wants_gpu(layer)
        plain = not gpus and layer.pinned is None
        if plain and self._last is not None and self._last[0] is layer.groups:  # of most layers the one before's
            return self._last[1]
        key = (layer.groups, layer.pinned, gpus)
        reach = self._reaches.get(key)
        if reach is None:
            hosts = [host for group in sorted(layer.groups) for host in self._by_group.get(group, ())]
            for index in sorted(layer.pinned or ()):
                if self._placer.hosts[index].group not in layer.groups:
                    hosts.append(self._placer.hosts[index])
            self._reaches[key] = reach = Reach(hosts, self._placer, gpus)
        if plain:
            self._last = (layer.groups, reach)
        return reach

    def _room(self, reach: Reach, sized: Layer) -> Wait:
        """Bucket and reasons as far as room on hosts goes; found once for layers of equal hosts and size."""
        owners = self._placer.holds.by_owner
        owns = sized.order if owners and sized.order in owners else -1
        key = (sized.cores_min, reach.class_of(sized.mem_min), sized.gpus_min, sized.gpu_mem_min, owns)
        wait = reach.rooms.get(key)
        if wait is None:
            reach.rooms[key] = wait = self._look(reach, sized)
        return wait

    def _look(self, reach: Reach, sized: Layer) -> Wait:
        whole = len(reach.hosts)
        cores, mem, gpus, gpu_mem = sized.cores_min, sized.mem_min, sized.gpus_min, sized.gpu_mem_min
        small = sum(
            count
            for (has_cores, has_mem, has_gpus, has_gpu_mem), count in reach.classes.items()
            if cores > has_cores or mem > has_mem or gpus > has_gpus or gpu_mem > has_gpu_mem or has_cores + cores <= 0
        )
        held, held_back = 0, False
        if reach.held or reach.kept:
            own = set(self._placer.holds.by_owner.get(sized.order, ()))
            others = [host for host in reach.held if host.index not in own]
            held, held_back = len(others), self._held_back(sized, others, reach.kept)
        counts = (
            small,
            rounded(bisect_left(reach.cores, cores) if cores > 0 else reach.busy, whole),
            rounded(bisect_left(reach.mem, mem), whole),
            rounded(bisect_left(reach.gpus, gpus), whole) if gpus else 0,
            rounded(bisect_left(reach.gpu_mem, gpu_mem), whole) if gpu_mem else 0,
            held,
            len(reach.kept),
            reach.short,
            reach.full,
            sum(1 for refused in reach.refusing if cores <= 0 or refused <= cores),
        )
        if small == whole:
            bucket = NO_HOST
        elif held_back:
            bucket = HELD
        else:
            bucket = CAPACITY if reach.idle < max(cores, 1) else NO_FIT
        key = (bucket, whole, counts)
        wait = self._named.get(key)
        if wait is None:
            reasons = tuple(Reason(cause, hosts) for cause, hosts in zip(CAUSES, counts) if hosts)
            self._named[key] = wait = Wait(bucket, reasons or (Reason(NONE_ALONE[bucket], whole),))
        return wait

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
