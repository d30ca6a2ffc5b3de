"""Keeps cores and memory of gpu hosts for waiting gpu frames, so that frames without gpus do not bury the gpus.

For each idle gpu that a waiting gpu frame could use, its host holds what one such frame needs besides. With no gpu work
waiting nothing is held.
"""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from planner.caps import Ledger
from planner.model import Host, Layer
from planner.size import fits_empty


def wants_gpu(layer: Layer) -> bool:
    """Whether the layer's frames ask for gpus or gpu memory; either may stand alone."""
    return layer.gpus_min > 0 or layer.gpu_mem_min > 0


def hold_for_gpus(hosts: List[Host], layers: List[Layer], ledger: Ledger, shut: Set[int]) -> bool:
    """Set hold_cores and hold_mem of the hosts, highest priority first; whether anything is held.

    `layers` are those that compete; `shut` the hosts (indexes) that others hold or that take nothing.
    """
    wanting = [layer for layer in layers if wants_gpu(layer)]
    if not wanting:
        return False
    free: Dict[int, List[int]] = {}  # host index -> gpus and gpu memory that nobody in the plan claims yet
    for host in hosts:
        if (host.idle_gpus > 0 or host.idle_gpu_mem > 0) and host.index not in shut:
            free[host.index] = [host.idle_gpus, host.idle_gpu_mem]
    wanting.sort(key=lambda layer: (-layer.priority, layer.order))
    barren: Set[Tuple[object, ...]] = set()  # shapes for which no gpu is left: the next layers need not look
    for layer in wanting:
        if not free:
            break
        shape = (layer.groups, layer.pinned, layer.gpus_min, layer.gpu_mem_min)
        if shape in barren or not ledger.allows(layer):
            continue
        if hold_for(hosts, layer, ledger, free):
            barren.add(shape)
    return any(host.hold_cores or host.hold_mem for host in hosts)


def hold_for(hosts: List[Host], layer: Layer, ledger: Ledger, free: Dict[int, List[int]]) -> bool:
    """Hold for the layer's waiting frames, first where one fits now; whether frames are left over."""
    left = layer.waiting
    usable = []
    for index, (gpus, gpu_mem) in free.items():
        host = hosts[index]
        if gpus < layer.gpus_min or gpu_mem < layer.gpu_mem_min or not fits_empty(layer, host):
            continue
        if host.group not in layer.groups and (layer.pinned is None or index not in layer.pinned):
            continue
        if ledger.headroom(layer, host.pk_alloc) < max(layer.cores_min, 1):
            continue
        fits = layer.cores_min <= host.idle_cores and layer.mem_min <= host.idle_mem
        usable.append((not fits, index))
    for _, index in sorted(usable):
        host = hosts[index]
        rest = free[index]
        cores = layer.cores_min if layer.cores_min > 0 else host.cores
        while left and rest[0] >= layer.gpus_min and rest[1] >= layer.gpu_mem_min and host.hold_cores < host.cores:
            rest[0] -= layer.gpus_min
            rest[1] -= layer.gpu_mem_min
            host.hold_cores += cores
            host.hold_mem += layer.mem_min
            left -= 1
        if rest[0] <= 0 and rest[1] <= 0:
            del free[index]
        if not left:
            return False
    return True
