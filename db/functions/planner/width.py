"""Which layers are wide: those that a stream of small frames can starve, so that hosts may be held for them."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from planner.model import Host, Layer

WIDE = 0.5  # of the largest host that the layer may use; not a setting: less lets small frames flood the reservations

Largest = Tuple[int, int, int]  # cores, memory, gpus


class Widths:
    """Tells which layers are wide; the largest host is found once for layers of equal hosts."""

    def __init__(self, hosts: List[Host]) -> None:
        self._hosts = hosts
        self._by_group: Dict[int, Largest] = {}
        for group, *size in {(host.group, host.cores, host.mem, host.gpus) for host in hosts}:
            self._by_group[group] = bigger(self._by_group.get(group, (0, 0, 0)), size)
        self._largest: Dict[Tuple[FrozenSet[int], Optional[FrozenSet[int]]], Largest] = {}
        # What is below this is wide nowhere.
        self._cores = WIDE * min((size[0] for size in self._by_group.values()), default=0)
        self._mem = WIDE * min((size[1] for size in self._by_group.values()), default=0)

    def wide(self, layer: Layer) -> bool:
        """Whether one frame takes half of the largest host's cores, memory or (two and more) gpus."""
        if 0 < layer.cores_min < self._cores and layer.mem_min < self._mem and layer.gpus_min < 2:
            return False
        key = (layer.groups, layer.pinned)
        largest = self._largest.get(key)
        if largest is None:
            of_groups = [self._by_group[group] for group in layer.groups if group in self._by_group]
            largest = (
                max((size[0] for size in of_groups), default=0),
                max((size[1] for size in of_groups), default=0),
                max((size[2] for size in of_groups), default=0),
            )
            for index in layer.pinned or ():
                host = self._hosts[index]
                largest = bigger(largest, (host.cores, host.mem, host.gpus))
            self._largest[key] = largest
        return (
            layer.cores_min <= 0
            or layer.cores_min >= WIDE * largest[0]
            or layer.mem_min >= WIDE * largest[1]
            or (layer.gpus_min > 1 and layer.gpus_min >= WIDE * largest[2])
        )


def bigger(size: Largest, other: Sequence[int]) -> Largest:
    return max(size[0], other[0]), max(size[1], other[1]), max(size[2], other[2])
