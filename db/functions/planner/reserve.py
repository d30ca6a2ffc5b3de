"""Holds hosts for work too wide to fit while small frames stream by (reference section 3.2).

A layer that stays blocked builds up debt; one that is wide and owes enough asks for hosts. What is granted here is held
from the next tick on. Holds are firm: only their owner's own demand, or its leaving, ends them.
"""

from __future__ import annotations

from random import Random
from typing import Dict, Iterable, List, Set, Tuple

from planner.backfill import fits_at, need
from planner.caps import Ledger
from planner.draw import weight
from planner.model import Host, Layer, Plan, Reservation
from planner.place import Placer
from planner.size import fits_empty
from planner.wait import CAPACITY, FLOWING, HELD, NO_FIT, NO_HOST
from planner.width import Widths

DEBT_MAX = 2  # times the threshold
BLOCKED = (CAPACITY, NO_FIT, HELD)
GRANT_SEED = 0x9E3779B9  # so that grants draw numbers of their own

def reserve(placer: Placer, made: Plan, out: Set[int], before: Ledger, seed: int) -> Plan:
    """The plan with reservations: what is released and granted, and the debts after this tick.

    `out`: orders of the layers beyond the cut. `before`: the caps as they stood at the tick's start.
    """
    settings, holds = placer.settings, placer.holds
    debts: Dict[str, int] = {}
    asking: List[Layer] = []
    if settings.reservations_enabled:
        debts, asking = owing(placer, made, out, before)
    releases = list(holds.ended)
    kept: Dict[int, List[int]] = {}  # order -> host indexes
    for order, indexes in holds.by_owner.items():
        layer = placer.layers[order]
        wanted = frames_wanted(placer, order, before)
        if not wanted and placer.waiting[order] and debts.get(layer.pk_layer, 0) > 0:
            wanted = placer.waiting[order]  # its caps are full just now, not for long yet
        # The surplus goes, least drained first.
        drained = sorted(indexes, key=lambda index: (-placer.hosts[index].idle_cores, index))
        stay = enough(placer, order, drained, wanted)
        kept.update({order: stay} if stay else {})
        releases.extend(placer.hosts[index].pk_host for index in drained[len(stay) :])
    grants = grant(placer, asking, kept, before, seed)
    held = [(order, index) for order, indexes in kept.items() for index in indexes]
    return made._replace(
        grants=tuple(grants),
        releases=tuple(releases),
        debts=debts,
        requested=len(asking),
        held=len(held) + len(grants),
        held_cores=sum(need(placer.layers[order], placer.hosts[index]).cores for order, index in held)
        + sum(grant.cores_min for grant in grants),
    )


def owing(placer: Placer, made: Plan, out: Set[int], before: Ledger) -> Tuple[Dict[str, int], List[Layer]]:
    """The debts (pk_layer -> ms) after this tick, and the layers that owe enough to ask.

    A bucket that leaks: blocked time adds; time with bookings takes away as much, and so does time in which its caps
    would not have let the layer start at all (what its caps had left at the tick's start counts, for others may take it
    only because the layer had no host). A layer beyond the cut keeps what it owes; one that left the candidates owes
    nothing. Only wide layers are counted, and a debt ends at twice the threshold: so long a hold outlives its use.
    """
    state = placer.state
    threshold = placer.settings.reservation_block_seconds * 1000
    wide = (placer.holds.widths or Widths(placer.hosts)).wide
    debts: Dict[str, int] = {}
    asking: List[Layer] = []
    for order, wait in made.waits.items():
        layer = placer.layers[order]
        owed = state.debts.get(layer.pk_layer, 0) if state.debts else 0
        if not owed and not wide(layer):  # of most layers all there is to see
            continue
        if layer.gates or wait.reason == NO_HOST:
            continue
        if order in out:
            keep(debts, layer, owed)
        elif wait.reason == FLOWING:
            if owed:
                keep(debts, layer, owed - state.elapsed_ms)
        elif wide(layer):
            if wait.reason in BLOCKED or frames_wanted(placer, order, before):
                debt = min(owed + state.elapsed_ms, max(owed, DEBT_MAX * threshold))
                if debt >= threshold:
                    asking.append(layer)
                keep(debts, layer, debt)
            else:
                keep(debts, layer, owed - state.elapsed_ms)
    return debts, asking


def keep(debts: Dict[str, int], layer: Layer, debt: int) -> None:
    """Store a debt; none is stored as absence."""
    if debt > 0:
        debts[layer.pk_layer] = debt
    else:
        debts.pop(layer.pk_layer, None)


def frames_wanted(placer: Placer, order: int, before: Ledger) -> int:
    """Frames of the layer that wait and that its caps allowed at the tick's start."""
    layer = placer.layers[order]
    parts = placer.sizes.variants.get(order) or [layer]
    allocs = tuple(pk_alloc for part in parts for pk_alloc in placer.allocs(part))
    return max(0, min(placer.waiting[order], before.most_frames(layer, allocs)))


def frames_on(layer: Layer, host: Host) -> int:
    """How many frames of the layer an empty host runs at once."""
    if layer.cores_min <= 0:
        return 1
    counts = [host.cores // layer.cores_min]
    if layer.mem_min > 0:
        counts.append(host.mem // layer.mem_min)
    if layer.gpus_min > 0:
        counts.append(host.gpus // layer.gpus_min)
    return max(1, min(counts))


def enough(placer: Placer, order: int, indexes: Iterable[int], wanted: int) -> List[int]:
    """The first of `indexes` (hosts) that hold `wanted` frames of the layer."""
    taken = []
    for index in indexes:
        if wanted <= 0:
            break
        layer = placer.sizes.on(order, placer.hosts[index])
        if layer is not None:
            wanted -= frames_on(layer, placer.hosts[index])
            taken.append(index)
    return taken


def grant(
    placer: Placer, asking: List[Layer], kept: Dict[int, List[int]], before: Ledger, seed: int
) -> List[Reservation]:
    """New reservations, in the order of a lottery by priority; few layers at once, and never a whole class of hosts."""
    if not asking:
        return []
    random = Random(seed ^ GRANT_SEED)
    settings = placer.settings
    held = {index for indexes in kept.values() for index in indexes}
    owners = set(kept)
    drawn = sorted((random.expovariate(1.0) / weight(layer.priority), layer.order) for layer in asking)
    grants: List[Reservation] = []
    for _, order in drawn:
        if order not in owners and len(owners) >= settings.reservation_max_grantees:
            continue
        layer = placer.layers[order]
        fitting = holders(placer, order)
        # One host at least: where a single host fits, nothing else could ever let the layer in.
        most = max(1, int(settings.reservation_max_fraction * len(fitting))) if settings.reservation_max_fraction else 0
        room = most - sum(1 for host in fitting if host.index in held)
        wanted = frames_wanted(placer, order, before)
        if room <= 0 or not wanted:
            continue
        own = kept.get(order, [])
        targets = [host.index for host in soonest(placer, order, fitting) if host.index not in held]
        for index in enough(placer, order, own + targets, wanted)[len(own) :][:room]:
            host = placer.hosts[index]
            part = placer.sizes.on(order, host) or layer
            cores = need(part, host).cores
            grants.append(Reservation(host.pk_host, layer.pk_layer, layer.priority, cores, placer.state.now_s))
            held.add(index)
            owners.add(order)
    return grants


def holders(placer: Placer, order: int) -> List[Host]:
    """The hosts that could hold a frame of the layer if they were empty."""
    found = []
    for host in placer.hosts:
        part = placer.sizes.on(order, host)
        if part is not None and fits_empty(part, host):
            found.append(host)
    return found


def soonest(placer: Placer, order: int, hosts: List[Host]) -> List[Host]:
    """The hosts in the order in which they are likely to have room: by the ends of their procs where those are known,
    then fewest procs, then most idle cores."""
    state = placer.state
    keys = []
    for host in hosts:
        if host.pk_host in state.short_mem:
            continue
        part = placer.sizes.on(order, host)
        running = state.ready.get(host.pk_host)
        if part is None:
            continue
        at = fits_at(need(part, host), host, running or (), state.now_s, float("inf"))
        procs = len(running) if running is not None else 1 << 30
        keys.append((at, procs, -host.idle_cores, host.index))
    return [placer.hosts[key[3]] for key in sorted(keys)]
