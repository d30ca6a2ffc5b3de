"""Stranded cores: what the score leaves unusable, beside first-fit on the same work."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from planner.model import Host, Layer
from planner.size import ONE_CORE
from planner.strand import fits
from tests.unit.build import caps, host, layer, run

HOSTS, TICKS = 24, 120
# Cores, GiB, ticks that a frame runs: a production's light frames, and few that are heavy; hosts have 4 GiB a core.
MIX = [(1, 1.5, 4), (2, 4, 6), (4, 10, 8), (1, 14, 12), (2, 30, 16), (4, 52, 10)]

Placed = list[tuple[int, int]]  # (layer, host) of each frame
Place = Callable[[list[Host], list[Layer], int], Placed]


def scored(hosts: list[Host], layers: list[Layer], seed: int) -> Placed:
    return [(placement.layer, placement.host) for placement in run(hosts, layers, caps(), seed=seed).placements]


def first_fit(hosts: list[Host], layers: list[Layer], seed: int) -> Placed:
    """The same lottery of equal priorities; each frame goes onto the first host with room."""
    random = Random(seed)
    left = {one.order: one.waiting for one in layers}
    room = {one.index: [one.idle_cores, one.idle_mem] for one in hosts}
    placed: Placed = []
    while left:
        drawn = layers[random.choice(sorted(left))]
        at = next((i for i, has in room.items() if has[0] >= drawn.cores_min and has[1] >= drawn.mem_min), None)
        if at is None:
            del left[drawn.order]
            continue
        room[at][0] -= drawn.cores_min
        room[at][1] -= drawn.mem_min
        placed.append((drawn.order, at))
        left[drawn.order] -= 1
        if not left[drawn.order]:
            del left[drawn.order]
    return placed


def farm(layers: list[Layer], running: list[tuple[int, int, int]]) -> list[Host]:
    """The hosts with what runs taken off."""
    hosts = [host(index, cores=32, gib=128) for index in range(HOSTS)]
    for _, order, index in running:
        hosts[index].idle_cores -= layers[order].cores_min
        hosts[index].idle_mem -= layers[order].mem_min
    return hosts


def core_ticks(place: Place) -> tuple[int, int]:
    """Core ticks that were idle where no waiting frame had the memory, and those that were used."""
    layers = [layer(order, cores, waiting=60, gib=gib) for order, (cores, gib, _) in enumerate(MIX)]
    shapes = [(one.cores_min, one.mem_min, 0, 0) for one in layers]
    running: list[tuple[int, int, int]] = []  # (end, layer, host)
    stranded = used = 0
    random = Random(22)
    for tick in range(TICKS):
        running = [one for one in running if one[0] > tick]
        for order, index in place(farm(layers, running), layers, tick):
            running.append((tick + MIX[order][2] + random.randrange(3), order, index))
        for one in farm(layers, running):
            used += one.cores - one.idle_cores
            if not any(fits(shape, one) for shape in shapes):
                stranded += one.idle_cores
    return stranded // ONE_CORE, used // ONE_CORE


def test_the_score_strands_a_fifth_less_core_time_than_first_fit() -> None:
    """P22: on a mix of memory-heavy and light layers, both always waiting."""
    ours, used = core_ticks(scored)
    theirs, used_by_first_fit = core_ticks(first_fit)
    assert theirs > 0
    assert ours <= 0.8 * theirs, (ours, theirs)
    assert used >= used_by_first_fit
