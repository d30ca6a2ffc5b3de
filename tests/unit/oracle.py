"""Brute force: the same decisions as planner.plan, made the plainest way. For small farms only.

It shares the definitions (score, sizes, caps, rates, what holds admit) and none of the machinery (heaps of draws,
pools, levels, a layer's own hosts): each slot looks at every show, every layer's next draw and every host.
"""

from __future__ import annotations

from itertools import dropwhile
from math import log
from random import Random

from planner.backfill import Holds
from planner.caps import Ledger
from planner.draw import age, first_draws, in_order, weight
from planner.hold import hold_for_gpus
from planner.model import CACHE_WARM, COLD, LIVE_WARM, Ask, Caps, Host, Layer, Placement, Settings, State
from planner.score import terms, total
from planner.size import asked
from planner.sizing import resize


def eligible(layer: Layer, host: Host) -> bool:
    """Whether the layer's gates allow the host, leaving room aside."""
    return host.group in layer.groups or (layer.pinned is not None and host.index in layer.pinned)


def fits(layer: Layer, host: Host, ledger: Ledger) -> Ask | None:
    """What one frame would reserve on the host, or None if it does not fit there now."""
    if not ledger.allows(layer) or not ledger.seats.admits(ledger.seat_limits(layer), host):
        return None
    return asked(layer, host, ledger.headroom(layer, host.pk_alloc))


def narrowed(layers: list[Layer], firsts: list[float], most: int, owners: set[str]) -> tuple[list[Layer], set[int]]:
    """The layers with only the groups where they are among the first `most`, and those that are so nowhere."""
    groups = {layer.order: set(layer.groups) for layer in layers}
    for group in {group for layer in layers for group in layer.groups}:
        ranked = sorted(
            (layer for layer in layers if not layer.gates and group in layer.groups),
            key=lambda layer: (layer.pk_layer not in owners, firsts[layer.order], layer.order),
        )
        for layer in ranked[most:]:
            groups[layer.order].discard(group)
    out = {layer.order for layer in layers if layer.groups and not groups[layer.order] and not layer.pinned}
    left = [la if la.order in out else la._replace(groups=frozenset(groups[la.order])) for la in layers]
    return left, out


class Oracle:
    """One tick by brute force; `placements` holds the outcome."""

    def __init__(
        self, hosts: list[Host], layers: list[Layer], caps: Caps, settings: Settings, seed: int, state: State
    ) -> None:
        self.hosts = hosts
        self.settings = settings
        self.state = state
        random = Random(seed)
        firsts = first_draws(layers, settings, random)
        owners = {held.pk_layer for held in state.reservations}
        layers, out = narrowed(layers, firsts, settings.layer_candidates_per_group_max, owners)
        self.sizes = resize(hosts, layers, settings, state)
        self.holds = Holds(hosts, self.sizes, settings, state)
        self.ledger = Ledger(caps)
        self.placements: list[Placement] = []
        self.job_frames: dict[tuple[str, int], int] = {}
        self.layer_frames: dict[tuple[int, int], int] = {}
        for layer in layers:
            for host in hosts:
                running = state.live.get(layer.pk_layer, {}).get(host.pk_host, 0)
                self.layer_frames[layer.order, host.index] = running
        self.left = {layer.order: layer.waiting for layer in layers}
        for order, allowed in self.sizes.probing.items():
            self.left[order] = min(self.left[order], allowed)
        competing = [
            layer for layer in layers if not layer.gates and (layer.groups or layer.pinned) and layer.order not in out
        ]
        shut = {host.index for host in hosts if host.pk_host in state.short_mem} | set(self.holds.by_host)
        if competing:
            hold_for_gpus(hosts, [self.sizes.layers[layer.order] for layer in competing], self.ledger, shut)
        self.queues: dict[tuple[str, str], dict[int, float]] = {}
        for layer in competing:
            allocs = {host.pk_alloc for host in hosts if eligible(layer, host)} if settings.fair_share else {""}
            for alloc in allocs:
                show = layer.pk_show if settings.fair_share else ""
                self.queues.setdefault((alloc, show), {})[layer.order] = firsts[layer.order]
        self.luck = {key: (*min((t, n) for n, t in queue.items()), *key) for key, queue in self.queues.items()}
        self.lines: dict[tuple[str, str], dict[int, list[int]]] = {key: {} for key in self.queues}
        for key, queue in self.queues.items():
            for order in queue:
                if in_order(layers[order], settings):
                    same = [
                        n for n in queue
                        if layers[n].pk_show == layers[order].pk_show
                        and weight(layers[n].priority) == weight(layers[order].priority)
                    ]  # fmt: skip
                    self.lines[key][order] = sorted(same, key=lambda n: age(layers[n]))
        self.dead: dict[tuple[str, str], set[int]] = {key: set() for key in self.queues}
        while any(self.queues.values()):
            self.slot(layers, random)

    def slot(self, layers: list[Layer], random: Random) -> None:
        """Give one slot away, or take one layer out of the running."""
        key = min(
            (key for key, queue in self.queues.items() if queue),
            key=lambda k: (self.ledger.tier(k[1], k[0]) if self.settings.fair_share else 0.0, self.luck[k]),
        )
        queue = self.queues[key]
        clock = min(queue, key=lambda n: (queue[n], n))
        line = self.lines[key].get(clock)
        order = clock
        if line is not None:
            # Who is behind the oldest that is left counts as left.
            able = list(dropwhile(lambda n: n in self.dead[key] or not self.left[n], line))
            if len(able) < sum(1 for n in line if n in queue):
                del queue[clock]
                return
            order = able[0]
        elif not self.left[order]:
            del queue[clock]
            return
        chosen = self.choose(order, key[0])
        if chosen is None:
            self.dead[key].add(order)
            del queue[clock]
            return
        self.take(order, chosen)
        if self.left[order]:
            queue[clock] -= log(1.0 - random.random()) / weight(layers[clock].priority)
        else:
            del queue[clock]

    def choose(self, order: int, alloc: str) -> Placement | None:
        """The cheapest host for the layer's next frame; one where it has its share only if nothing else is left."""
        offers = []
        for host in self.hosts:
            layer = self.sizes.on(order, host)
            if layer is None or (alloc and host.pk_alloc != alloc) or host.pk_host in self.state.short_mem:
                continue
            if not self.holds.admits(layer, host):
                continue
            if 0 < self.settings.host_frame_dispatch_max <= host.frames:
                continue
            if 0 < self.settings.job_frame_dispatch_max <= self.job_frames.get((layer.pk_job, host.index), 0):
                continue
            ask = fits(layer, host, self.ledger)
            if ask is None:
                continue
            share = max(8, int(self.settings.layer_host_max_frac * host.cores / (layer.cores_min or host.cores)))
            if layer.cores_min < 0:
                share = 8
            full = self.settings.layer_host_max_frac > 0 and self.layer_frames[order, host.index] >= share
            locality, warmth = self.warmth(layer, host)
            seats = self.ledger.seats.held(self.ledger.seat_limits(layer), host)
            found = terms(host, ask, self.settings, locality, seats * self.settings.host_limit_seat_bonus)
            borrowed = self.holds.borrowed(layer, host.index)
            placement = Placement(order, host.index, ask, total(found), found, warmth, borrowed)
            offers.append((full, placement.score, host.index, placement))
        peaks = self.state.peaks.get(self.sizes.layers[order].pk_layer)
        if peaks is None or peaks.samples < 4:
            offers = [offer for offer in offers if not offer[0]]
        return min(offers)[3] if offers else None

    def warmth(self, layer: Layer, host: Host) -> tuple[float, str]:
        bonus = self.settings.locality_bonus if self.settings.locality_enabled else 0.0
        if host.pk_host in self.state.live.get(layer.pk_layer, {}):
            return bonus, LIVE_WARM
        window = self.settings.locality_window_frames
        foreign = self.state.warm.get(layer.pk_layer, {}).get(host.pk_host, window)
        if foreign < window:
            return bonus * (1 - foreign / window), CACHE_WARM
        return 0.0, COLD

    def take(self, order: int, placement: Placement) -> None:
        host = self.hosts[placement.host]
        layer = self.sizes.layers[order]
        host.take(placement.ask)
        self.ledger.spend(layer, host, placement.ask)
        self.left[order] -= 1
        self.job_frames[layer.pk_job, host.index] = self.job_frames.get((layer.pk_job, host.index), 0) + 1
        self.layer_frames[order, host.index] += 1
        self.placements.append(placement)


def oracle(
    hosts: list[Host], layers: list[Layer], caps: Caps, settings: Settings, seed: int, state: State
) -> list[Placement]:
    """The placements that planner.plan must make, in its order."""
    return Oracle(hosts, layers, caps, settings, seed, state).placements
