"""Hosts that a layer weighs one by one, because they have something for it: warm data, a seat, or a hold.

They are few. For one layer and a fixed bonus a host's score only rises within a tick, so a heap whose top is rated
again when its host has changed gives the exact minimum. What may lower a score or open a host again (a seat that the
host gains) enters the host anew. Hosts whose frames take whatever is idle have no such order: they are rated each time.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Callable, Dict, List, Optional, Tuple

from planner.model import Host
from planner.pool import Best

Rating = Tuple[float, int, int]  # score, host index, core points that the frame reserves there
Entry = Tuple[float, int, int, int]  # the same, and last the host's version


class Near:
    """A layer's own hosts, by allocation."""

    __slots__ = ("_heaps", "_holds", "_hosts", "_rate", "_shifting")

    def __init__(
        self,
        hosts: List[Host],
        rate: Callable[[int], Optional[Rating]],
        holds: Callable[[int, int], bool] = lambda index, cores: False,
    ) -> None:
        """`rate` gives what the host (an index) offers now; None takes the host out until it is added again.

        `holds`: whether the offer of so many points on a host still stands for certain, the host being unchanged; it
        saves the rating.
        """
        self._holds = holds
        self._hosts = hosts
        self._rate = rate
        self._heaps: Dict[str, List[Entry]] = {}
        self._shifting: Dict[str, List[int]] = {}

    def add(self, index: int, shifting: bool) -> None:
        """Enter a host; `shifting` if its score may fall as it fills."""
        host = self._hosts[index]
        if shifting:
            known = self._shifting.setdefault(host.pk_alloc, [])
            if index not in known:
                known.append(index)
            return
        rating = self._rate(index)
        if rating is not None:
            heappush(self._heaps.setdefault(host.pk_alloc, []), (*rating, host.version))

    def best(self, only_alloc: Optional[str]) -> Optional[Rating]:
        """The cheapest offer, the first in the snapshot among equals."""
        found: Optional[Rating] = None
        for pk_alloc, heap in self._heaps.items():
            if only_alloc is None or pk_alloc == only_alloc:
                found = _cheaper(found, self._top(heap))
        for pk_alloc, indexes in self._shifting.items():
            if only_alloc is None or pk_alloc == only_alloc:
                for index in indexes:
                    found = _cheaper(found, self._rate(index))
        return found

    def _top(self, heap: List[Entry]) -> Optional[Rating]:
        """The heap's best offer as it stands now; hosts that offer nothing leave."""
        hosts = self._hosts
        while heap:
            score, index, cores, version = heap[0]
            unchanged = version == hosts[index].version
            if unchanged and self._holds(index, cores):
                return score, index, cores
            rating = self._rate(index)
            if rating is None:
                heappop(heap)
            elif unchanged or rating[0] <= score:
                return rating
            else:
                heapreplace(heap, (*rating, hosts[index].version))
        return None


def _cheaper(first: Optional[Rating], second: Optional[Rating]) -> Optional[Rating]:
    """The cheaper of two, the first in the snapshot among equals."""
    if first is None or second is None:
        return first if second is None else second
    return second if second < first else first


def better(first: Optional[Best], second: Optional[Best]) -> Optional[Best]:
    """The cheaper of two offers, the first in the snapshot among equals."""
    if first is None or second is None:
        return first if second is None else second
    if second.score < first.score or (second.score == first.score and second.host.index < first.host.index):
        return second
    return first
