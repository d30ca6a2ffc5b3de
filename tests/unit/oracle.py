"""Brute force: the same decisions as planner.place, made the plainest way. For small farms only.

It shares the definitions (score, sizes, caps, rates) and none of the machinery (heaps of draws, pools, levels): each
slot looks at every layer's next draw and at every host.
"""

from __future__ import annotations

from random import Random

from planner.caps import Ledger
from planner.model import Ask, Caps, Host, Layer, Placement, Settings
from planner.place import weight
from planner.score import score
from planner.size import cores_asked


def eligible(layer: Layer, host: Host) -> bool:
    """Whether the layer's gates allow the host, leaving room aside."""
    return host.group in layer.groups or (layer.pinned is not None and host.index in layer.pinned)


def fits(layer: Layer, host: Host, ledger: Ledger) -> Ask | None:
    """What one frame would reserve on the host, or None if it does not fit there now."""
    cores = cores_asked(layer, host.thread_mode, host.cores, host.idle_cores)
    if not cores or cores > ledger.headroom(layer, host.pk_alloc) or not ledger.allows(layer):
        return None
    ask = Ask(cores, layer.mem_min, layer.gpus_min, layer.gpu_mem_min)
    if ask.mem > host.idle_mem or ask.gpus > host.idle_gpus or ask.gpu_mem > host.idle_gpu_mem:
        return None
    return ask


def oracle(hosts: list[Host], layers: list[Layer], caps: Caps, settings: Settings, seed: int) -> list[Placement]:
    """The placements that planner.place must make, in its order."""
    random = Random(seed)
    first = {layer.order: random.expovariate(1.0) / weight(layer.priority) for layer in layers}
    groups = {layer.order: set(layer.groups) for layer in layers}
    candidates = [layer for layer in layers if not layer.gates and (layer.groups or layer.pinned)]
    for group in {host.group for host in hosts}:
        ranked = sorted((layer for layer in candidates if group in layer.groups), key=lambda la: first[la.order])
        for layer in ranked[settings.layer_candidates_per_group_max :]:
            groups[layer.order].discard(group)
    ledger = Ledger(caps)
    left = {layer.order: layer.waiting for layer in candidates}
    draws = {layer.order: first[layer.order] for layer in candidates}
    job_frames: dict[tuple[str, int], int] = {}
    placements = []
    while draws:
        order = min(draws, key=lambda n: (draws[n], n))
        layer = layers[order]
        best: tuple[float, int, Ask] | None = None
        for host in hosts:
            pinned = layer.pinned is not None and host.index in layer.pinned
            if not pinned and host.group not in groups[order]:
                continue
            if 0 < settings.host_frame_dispatch_max <= host.frames:
                continue
            if 0 < settings.job_frame_dispatch_max <= job_frames.get((layer.pk_job, host.index), 0):
                continue
            ask = fits(layer, host, ledger)
            if ask is None:
                continue
            cost = (score(host, ask, settings), host.index, ask)
            if best is None or cost < best:
                best = cost
        if best is None:
            del draws[order]
            continue
        cost, index, ask = best
        hosts[index].take(ask)
        ledger.spend(layer, hosts[index].pk_alloc, ask)
        job_frames[layer.pk_job, index] = job_frames.get((layer.pk_job, index), 0) + 1
        placements.append(Placement(order, index, ask, cost))
        left[order] -= 1
        if left[order]:
            draws[order] += random.expovariate(1.0) / weight(layer.priority)
        else:
            del draws[order]
    return placements
