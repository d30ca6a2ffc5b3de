"""Stranded cores: what stays idle though work waits, because no waiting layer can use it (reference section 3.8)."""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from planner.model import Host, Layer
from planner.place import Placer
from planner.size import ONE_CORE

Shape = Tuple[int, int, int, int]  # cores, memory, gpus, gpu memory
NO_MEM = 1 << 62  # more than any frame asks for


def least_shapes(shapes: Set[Shape]) -> List[Shape]:
    """Those that no other is smaller than in every dimension: what fits any of `shapes` fits one of them."""
    kept: List[Shape] = []
    gpu_shapes: List[Shape] = []
    least_mem = NO_MEM
    for shape in sorted(shapes):
        if shape[2] or shape[3]:
            gpu_shapes.append(shape)
        elif shape[1] < least_mem:  # sorted by cores: smaller ones with no more memory came before
            least_mem = shape[1]
            kept.append(shape)
    for shape in gpu_shapes:
        if not any(all(small <= big for small, big in zip(other, shape)) for other in kept):
            kept.append(shape)
    return kept


def stranded(placer: Placer, layers: List[Layer]) -> Dict[str, int]:
    """Idle core points by allocation, whole cores only, of hosts that some waiting layer may use and none fits.

    A layer that fits and waits for its caps strands nothing. Held hosts and those short of memory are not counted.
    """
    idle = [
        host for host in placer.hosts
        if host.idle_cores >= ONE_CORE and host.index not in placer.holds.by_host
        and host.pk_host not in placer.state.short_mem
    ]  # fmt: skip
    if not idle:
        return {}
    # The least memory of each kind of frame: of most layers it is an amount of their own.
    wanted: Dict[object, Tuple[Layer, Dict[Tuple[int, int, int], int]]] = {}
    for order, left in enumerate(placer.waiting):
        if left and not layers[order].gates:
            for part in placer.sizes.variants.get(order) or (placer.layers[order],):
                mems = wanted.setdefault((part.groups, part.pinned), (part, {}))[1]
                kind = (part.cores_min, part.gpus_min, part.gpu_mem_min)
                if part.mem_min < mems.get(kind, NO_MEM):
                    mems[kind] = part.mem_min
    by_group: Dict[int, Set[Shape]] = {}
    by_host: Dict[int, Set[Shape]] = {}
    for part, mems in wanted.values():
        least = least_shapes({(cores, mem, gpus, gpu_mem) for (cores, gpus, gpu_mem), mem in mems.items()})
        for group in part.groups:
            by_group.setdefault(group, set()).update(least)
        for index in part.pinned or ():
            by_host.setdefault(index, set()).update(least)
    fewest = {group: least_shapes(shapes) for group, shapes in by_group.items()}
    found: Dict[str, int] = {}
    for host in idle:
        shapes_there = fewest.get(host.group, []) + sorted(by_host.get(host.index, ()))
        if shapes_there and not any(fits(shape, host) for shape in shapes_there):
            found[host.pk_alloc] = found.get(host.pk_alloc, 0) + host.idle_cores - host.idle_cores % ONE_CORE
    return found


def fits(shape: Shape, host: Host) -> bool:
    """Whether a frame of the shape would go onto the host now."""
    cores, mem, gpus, gpu_mem = shape
    if cores <= 0:
        cores = host.cores
    return (
        cores <= host.idle_cores and mem <= host.idle_mem and gpus <= host.idle_gpus and gpu_mem <= host.idle_gpu_mem
    )
