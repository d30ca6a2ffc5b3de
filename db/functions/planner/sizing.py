"""Sizes layers by what their frames were seen to use (reference section 3.9).

A layer whose frames hold 18 GiB but book one core exhausts a host's memory and leaves its cores unbookable. Once four
frames were sampled, a threadable layer asks for the cores that its memory is worth in each host group, and for the
memory that it really uses. One core on such a layer means "let the system decide": before any evidence it runs a probe.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from planner.model import Host, Layer, Settings, State
from planner.size import ONE_CORE

SAMPLES_MIN = 4
PROBE_FRAMES = 8


class Sizes(NamedTuple):
    """Layers as they are planned."""

    layers: List[Layer]  # of the size that they have in most of their groups
    variants: Dict[int, List[Layer]]  # order -> the layer once a size, each with the groups where it has that size
    probing: Dict[int, int]  # order -> frames that its probe still allows

    def on(self, order: int, host: Host) -> Optional[Layer]:
        """The layer in the size that it has on the host; None if it may not run there."""
        for layer in self.variants.get(order) or (self.layers[order],):
            if host.group in layer.groups or (layer.pinned is not None and host.index in layer.pinned):
                return layer
        return None


def core_prices(hosts: List[Host], settings: Settings) -> Tuple[Dict[int, float], Dict[int, int]]:
    """KiB of memory per core, and core points of the largest host, by group."""
    cores: Dict[int, int] = {}
    mem: Dict[int, int] = {}
    largest: Dict[int, int] = {}
    # Hosts are many, sizes few.
    for (group, host_cores, host_mem), count in Counter((host.group, host.cores, host.mem) for host in hosts).items():
        cores[group] = cores.get(group, 0) + host_cores * count
        mem[group] = mem.get(group, 0) + host_mem * count
        largest[group] = max(largest.get(group, 0), host_cores)
    if settings.mem_per_core:
        return dict.fromkeys(cores, float(settings.mem_per_core)), largest
    return {group: mem[group] * ONE_CORE / cores[group] for group in cores if cores[group]}, largest


def cores_for(rss: int, per_core: float) -> int:
    """Core points that `rss` KiB are worth."""
    return int(rss / per_core + 0.5) * ONE_CORE


def resize(hosts: List[Host], layers: List[Layer], settings: Settings, state: State) -> Sizes:
    """The layers sized by evidence, those without it put on probe. Asks only grow, and never past cores_max."""
    variants: Dict[int, List[Layer]] = {}
    probing: Dict[int, int] = {}
    if not settings.memory_sizing or not (state.peaks or state.completed):
        return Sizes(layers, variants, probing)
    prices, largest = core_prices(hosts, settings)
    cheapest = min(prices.values(), default=1.0)
    sized = list(layers)
    for layer in layers:
        if not layer.threadable or layer.cores_min < ONE_CORE:
            continue
        peaks = state.peaks.get(layer.pk_layer)
        if peaks is None or peaks.samples < SAMPLES_MIN:
            done = state.completed.get(layer.pk_layer)
            if layer.cores_min == ONE_CORE and done is not None and done < PROBE_FRAMES:
                probing[layer.order] = max(0, PROBE_FRAMES - layer.running - done)
            continue
        rss = peaks.median_rss
        if rss <= layer.mem_min and int(rss / cheapest + 0.5) * ONE_CORE <= layer.cores_min:
            continue
        found = in_groups(layer, rss, hosts, prices, largest)
        sized[layer.order] = found[0]
        if len(found) > 1:
            variants[layer.order] = found
    return Sizes(sized, variants, probing)


def in_groups(
    layer: Layer, rss: int, hosts: List[Host], prices: Dict[int, float], largest: Dict[int, int]
) -> List[Layer]:
    """The layer once a size, that of most groups first; equal sizes are one."""
    mem = max(layer.mem_min, rss)
    pins: Dict[int, List[int]] = {}  # group -> hosts that are named there
    for index in layer.pinned or ():
        pins.setdefault(hosts[index].group, []).append(index)
    by_size: Dict[int, List[int]] = {}
    for group in sorted(layer.groups | set(pins)):
        if group not in prices:
            continue
        cores = min(cores_for(rss, prices[group]), largest[group])
        if layer.cores_max:
            cores = min(cores, layer.cores_max)
        by_size.setdefault(max(cores, layer.cores_min), []).append(group)
    found = []
    for cores, groups in sorted(by_size.items(), key=lambda item: (-len(item[1]), item[0])):
        named: FrozenSet[int] = frozenset(index for group in groups for index in pins.get(group, ()))
        found.append(
            layer._replace(
                cores_min=cores, mem_min=mem, groups=layer.groups & frozenset(groups), pinned=named or None
            )
        )
    if len(found) == 1:
        return [found[0]._replace(groups=layer.groups, pinned=layer.pinned)]
    return found or [layer]
