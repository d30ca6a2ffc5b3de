"""One tick's plan, in order: what is held, how big frames are, who competes, whose turn it is, where it goes, what is
reserved for those left over, and why they wait."""

from __future__ import annotations

from random import Random
from typing import Callable, List, Tuple

from planner.backfill import Holds
from planner.caps import Ledger
from planner.draw import Cut, Draws, cut, first_draws
from planner.hold import hold_for_gpus
from planner.model import Caps, Host, Layer, Plan, Settings, State
from planner.place import Placer
from planner.reserve import reserve
from planner.sizing import resize
from planner.strand import stranded
from planner.wait import Waits

CLOCK_EVERY = 64  # draws between two looks at the clock
NOTHING_KNOWN = State()
GROUPS_WARN = 10  # fewer groups than this are never too many


def plan(
    hosts: List[Host],
    layers: List[Layer],
    caps: Caps,
    settings: Settings,
    seed: int,
    out_of_time: Callable[[], bool] = lambda: False,
    state: State = NOTHING_KNOWN,
) -> Plan:
    """Decide where waiting frames run, what is reserved, and why the rest waits.

    Arguments: `hosts` and `layers` in snapshot order, `index` and `order` being the place in the list (hosts are used
    up: idle falls); `caps` what may be booked; `seed` of the lottery; `out_of_time` is asked every CLOCK_EVERY draws.
    Result: placements in draw order, and why each layer with frames left waits. Same input and seed, same plan.
    """
    random = Random(seed)
    firsts = first_draws(layers, settings, random)
    competing = [layer.order for layer in layers if not layer.gates and (layer.groups or layer.pinned)]
    weighed, out, lost = Cut(layers, set(), 0)
    if len(competing) > settings.layer_candidates_per_group_max:
        competing.sort(key=firsts.__getitem__)
        owners = {held.pk_layer for held in state.reservations}
        if owners:  # a host is held for them: they are weighed first
            competing.sort(key=lambda order: layers[order].pk_layer not in owners)
        weighed, out, lost = cut(layers, competing, settings.layer_candidates_per_group_max)
        competing = [order for order in competing if order not in out]
    sizes = resize(hosts, weighed, settings, state)
    holds = Holds(hosts, sizes, settings, state)
    short = {host.index for host in hosts if host.pk_host in state.short_mem} if state.short_mem else set()
    ledger = Ledger(caps)
    placer = Placer(hosts, sizes, ledger, settings, state, holds, short)
    if settings.gpu_hold_enabled:
        hold_for_gpus(hosts, [sizes.layers[order] for order in competing], ledger, short | set(holds.by_host))
    entries = [(order, placer.allocs(weighed[order])) for order in competing]
    draws = Draws(sizes.layers, entries, firsts, placer.waiting, ledger, settings, random)
    placer.compete(competing)
    late = False
    count = 0
    while not placer.full():
        turn = draws.next()
        if turn is None:
            break
        count += 1
        if count % CLOCK_EVERY == 0 and out_of_time():
            late = True
            break
        layer = sizes.layers[turn[0]]
        best = placer.best(layer, turn[1])
        if best is None:
            draws.no_host()
        else:
            placer.book(layer, best)
            draws.booked()
    waits = Waits(placer, layers, weighed, out, late).all()
    made = Plan(placer.placements, waits, lost, late)
    made = reserve(placer, made, out, Ledger(caps), seed)
    made = made._replace(stranded=stranded(placer, layers), warnings=warnings(hosts))
    placer.close()
    return made


def warnings(hosts: List[Host]) -> Tuple[Tuple[str, str], ...]:
    """What an operator should know of the farm itself."""
    groups = len({host.group for host in hosts})
    if groups < GROUPS_WARN or groups * 2 < len(hosts):
        return ()
    message = "%d groups for %d hosts: tags differ from host to host, so each is weighed alone" % (groups, len(hosts))
    return (("host groups", message),)
