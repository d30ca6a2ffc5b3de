"""Caps that a plan spends as it places: job, folder and show cores, gpus, and limits. All are inclusive."""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from planner.model import Ask, Caps, Host, Layer, Limit

NO_CAP = 1 << 62
NO_SIZE = 1e9  # tier of a show without a size: behind every show that has one


class Seats:
    """The limits of type HOST: a machine that holds a seat runs any number of bound frames on it."""

    def __init__(self, limits: Dict[str, Limit]) -> None:
        self._limits = limits
        self._left = {
            key: (limit.soft_value if limit.soft_value >= 0 else limit.max_value) - limit.used
            for key, limit in limits.items()
        }
        self._holders: Dict[str, Set[str]] = {key: set(limit.holders) for key, limit in limits.items()}
        self.gained: List[int] = []  # indexes of hosts that took a seat in this tick, in order

    def holders(self, limit: str) -> Set[str]:
        """pk_host of the machines with a seat; grows as the tick places."""
        return self._holders[limit]

    def spent(self, limit: str) -> bool:
        """Whether no further machine may take a seat."""
        return self._left[limit] < 1

    def admits(self, limits: Tuple[str, ...], host: Host) -> bool:
        """Whether the host holds or may take a seat in each of `limits`."""
        for limit in limits:
            if self._left[limit] < 1 and host.pk_host not in self._holders[limit]:
                return False
        return True

    def held(self, limits: Tuple[str, ...], host: Host) -> int:
        """In how many of `limits` the host holds a seat."""
        return sum(1 for limit in limits if host.pk_host in self._holders[limit])

    def take(self, limits: Tuple[str, ...], host: Host) -> None:
        """A bound frame starts on the host: it takes the seats that it lacks."""
        for limit in limits:
            if host.pk_host not in self._holders[limit]:
                self._holders[limit].add(host.pk_host)
                self._left[limit] -= 1
                self.gained.append(host.index)


class Ledger:
    """What each cap still allows. Built from the snapshot, spent frame by frame."""

    def __init__(self, caps: Caps) -> None:
        self._jobs: Dict[str, List[int]] = {key: list(value) for key, value in caps.jobs.items()}
        self._folders: Dict[str, List[int]] = {key: list(value) for key, value in caps.folders.items()}
        self._shares = caps.shows
        self._shows: Dict[Tuple[str, str], int] = {key: s.burst - s.cores for key, s in caps.shows.items()}
        self._frames: Dict[str, int] = {}  # limits of type FRAME: what is left
        self._names = {key: limit.name for key, limit in caps.limits.items()}
        self._frame_limits: Dict[str, Tuple[str, ...]] = {}
        self._seat_limits: Dict[str, Tuple[str, ...]] = {}
        per_host: Dict[str, Limit] = {}
        for key, limit in caps.limits.items():
            if limit.per_host:
                per_host[key] = limit
            else:
                self._frames[key] = limit.max_value - limit.used
        for pk_layer, bound in caps.layer_limits.items():
            frame = tuple(key for key in bound if key in self._frames)
            seat = tuple(key for key in bound if key in per_host)
            if frame:
                self._frame_limits[pk_layer] = frame
            if seat:
                self._seat_limits[pk_layer] = seat
        self.seats = Seats(per_host)

    def most_frames(self, layer: Layer, allocs: Tuple[str, ...]) -> int:
        """How many frames of the layer its caps allow at most, if hosts in `allocs` have room."""
        if not self.allows(layer):
            return 0
        room = max((self.headroom(layer, pk_alloc) for pk_alloc in allocs), default=0)
        frames = [self._frames[limit] for limit in self._frame_limits.get(layer.pk_layer, ())]
        return min([room // max(layer.cores_min, 1), *frames])

    def seat_limits(self, layer: Layer) -> Tuple[str, ...]:
        """The layer's limits of type HOST."""
        return self._seat_limits.get(layer.pk_layer, ())

    def admits(self, layer: Layer) -> bool:
        """Whether neither `refusals` nor `spent_seats` would name anything, at a fraction of their cost."""
        if self._frame_limits or self._seat_limits:
            return not (self.refusals(layer) or self.spent_seats(layer))
        least = layer.cores_min if layer.cores_min > 0 else 1
        for owner in (self._jobs.get(layer.pk_job), self._folders.get(layer.pk_folder)):
            if owner is not None and (owner[0] < least or owner[1] < layer.gpus_min):
                return False
        return True

    def refusals(self, layer: Layer) -> List[str]:
        """The caps that refuse even one smallest frame of `layer` wherever it runs; empty if none does."""
        least = max(layer.cores_min, 1)
        found = []
        job = self._jobs.get(layer.pk_job)
        if job is not None:
            if job[0] < least:
                found.append("job cores")
            if layer.gpus_min and job[1] < layer.gpus_min:
                found.append("job gpus")
        folder = self._folders.get(layer.pk_folder)
        if folder is not None:
            if folder[0] < least:
                found.append("folder cores")
            if layer.gpus_min and folder[1] < layer.gpus_min:
                found.append("folder gpus")
        if self._frame_limits:
            for limit in self._frame_limits.get(layer.pk_layer, ()):
                if self._frames[limit] < 1:
                    found.append("limit " + self._names[limit])
        return found

    def spent_seats(self, layer: Layer) -> List[Tuple[str, int]]:
        """The layer's HOST limits without a free seat: reason, and how many machines hold one."""
        if not self._seat_limits:
            return []
        return [
            ("limit " + self._names[limit], len(self.seats.holders(limit)))
            for limit in self._seat_limits.get(layer.pk_layer, ())
            if self.seats.spent(limit)
        ]

    def allows(self, layer: Layer) -> bool:
        """Whether gpus and limits leave room for a frame; cores are `headroom`'s, which differs by allocation."""
        if layer.gpus_min:
            for owner in (self._jobs.get(layer.pk_job), self._folders.get(layer.pk_folder)):
                if owner is not None and owner[1] < layer.gpus_min:
                    return False
        if self._frame_limits:
            for limit in self._frame_limits.get(layer.pk_layer, ()):
                if self._frames[limit] < 1:
                    return False
        return True

    def headroom(self, layer: Layer, pk_alloc: str) -> int:
        """Core points that job, folder and the show's burst leave `layer` in an allocation."""
        room = self._shows.get((layer.pk_show, pk_alloc), 0)
        job = self._jobs.get(layer.pk_job)
        if job is not None and job[0] < room:
            room = job[0]
        folder = self._folders.get(layer.pk_folder)
        if folder is not None and folder[0] < room:
            room = folder[0]
        return room

    def burst_room(self, pk_show: str, pk_alloc: str) -> int:
        """Core points that the show may still book in the allocation."""
        return self._shows.get((pk_show, pk_alloc), 0)

    def tier(self, pk_show: str, pk_alloc: str) -> float:
        """How much of its subscription's size a show runs in an allocation: who has least goes first."""
        share = self._shares.get((pk_show, pk_alloc))
        if share is None:
            return 2 * NO_SIZE
        cores = share.burst - self._shows[pk_show, pk_alloc]
        return cores / share.size if share.size > 0 else NO_SIZE + cores

    def spend(self, layer: Layer, host: Host, ask: Ask) -> None:
        """Charge one frame. The caller has seen that it fits."""
        self._shows[(layer.pk_show, host.pk_alloc)] -= ask.cores
        for owner in (self._jobs.get(layer.pk_job), self._folders.get(layer.pk_folder)):
            if owner is not None:
                owner[0] -= ask.cores
                owner[1] -= ask.gpus
        if self._frame_limits:
            for limit in self._frame_limits.get(layer.pk_layer, ()):
                self._frames[limit] -= 1
        if self._seat_limits:
            self.seats.take(self._seat_limits.get(layer.pk_layer, ()), host)
