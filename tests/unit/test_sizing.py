"""Frames' sizes: by what they were seen to use (reference section 3.9), by thread mode, for selfish services."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.model import THREAD_ALL, THREAD_VARIABLE, Layer, Peaks, Settings, Share, State
from tests.unit.build import GIB, by_layer, caps, host, layer, run, why

EVEN = Settings(mem_per_core=int(3.5 * GIB), layer_host_max_frac=0)


def seen(gib: float, samples: int = 4) -> State:
    return State(peaks={"layer0": Peaks(int(gib * GIB), samples)})


def sizes(made_of: State, one: Layer | None = None, knobs: Settings = EVEN) -> set[tuple[int, float]]:
    hosts = [host(n, cores=32, gib=112) for n in range(2)]
    made = run(hosts, [one or layer(0, waiting=99)], knobs=knobs, state=made_of)
    return {(p.ask.cores, p.ask.mem / GIB) for p in made.placements}


def test_an_18_gib_frame_of_one_core_books_five_cores_at_3_5_gib_a_core() -> None:
    assert sizes(seen(18)) == {(500, 18.0)}


def test_the_flood_of_18_gib_frames_leaves_no_core_unbookable() -> None:
    """Undersized, six frames take a host's memory and leave 26 of 32 cores; sized they use 30."""
    hosts = [host(0, cores=32, gib=112)]
    run(hosts, [layer(0, waiting=99, gib=18)], knobs=EVEN)
    assert hosts[0].idle_cores == 2600
    hosts = [host(0, cores=32, gib=112)]
    run(hosts, [layer(0, waiting=99, gib=18)], knobs=EVEN, state=seen(18))
    assert hosts[0].idle_cores == 200


def test_the_price_of_a_core_is_the_groups_own_unless_set() -> None:
    hosts = [host(0, cores=10, gib=20), host(1, cores=10, gib=40, group=1)]
    made = run(hosts, [layer(0, waiting=9, groups=frozenset({0, 1}))], state=seen(8))
    assert {(p.host, p.ask.cores) for p in made.placements} == {(0, 400), (1, 200)}


def test_four_samples_are_needed() -> None:
    assert sizes(seen(18, 3)) == {(100, 1.0)}


def test_a_size_never_falls_below_the_ask_nor_passes_the_maximum() -> None:
    assert sizes(seen(0.1), layer(0, cores=4, gib=8)) == {(400, 8.0)}
    assert sizes(seen(18), layer(0, cores_max=300)) == {(300, 18.0)}
    assert sizes(seen(18), layer(0, cores=8, cores_max=300)) == {(800, 18.0)}


def test_layers_without_threads_and_whole_host_requests_keep_their_size() -> None:
    assert sizes(seen(18), layer(0, threadable=False)) == {(100, 1.0)}
    assert sizes(seen(18), layer(0, cores=-4)) == {(2800, 1.0)}
    assert sizes(seen(18), knobs=EVEN._replace(memory_sizing=False)) == {(100, 1.0)}


def test_a_size_is_never_more_than_the_largest_host_of_the_group() -> None:
    assert sizes(seen(111), knobs=EVEN._replace(mem_per_core=GIB)) == {(3200, 111.0)}


def probe(running: int, completed: int, samples: int = 0, one: Layer | None = None) -> int:
    state = State(completed={"layer0": completed}, peaks={"layer0": Peaks(GIB, samples)} if samples else {})
    found = one or layer(0, waiting=99, running=running)
    return len(run([host(0, cores=64)], [found], knobs=EVEN, state=state).placements)


def test_a_one_core_layer_without_evidence_probes_with_eight_frames() -> None:
    assert probe(0, 0) == 8
    assert probe(5, 1) == 2
    assert probe(8, 0) == 0


def test_a_probe_ends_with_four_samples_or_eight_frames_done() -> None:
    assert probe(8, 2, samples=4) == 64
    assert probe(8, 2, samples=3) == 0
    assert probe(0, 8) == 64


def test_only_threadable_layers_of_one_core_probe() -> None:
    assert probe(0, 0, one=layer(0, waiting=99, threadable=False)) == 64
    assert probe(0, 0, one=layer(0, cores=2, waiting=99)) == 32
    assert len(run([host(0, cores=64)], [layer(0, waiting=99)], knobs=EVEN).placements) == 64


def test_a_layer_on_probe_says_so() -> None:
    state = State(completed={"layer0": 0})
    made = run([host(0, cores=64)], [layer(0, waiting=9, running=8)], state=state)
    assert made.waits[0].reason == "limit"
    assert why(made, 0) == {"memory probe": 1}


@pytest.mark.parametrize(
    ("mode", "selfish", "cores", "most", "expected"),
    [
        (0, False, 1, 0, 100),
        (THREAD_ALL, False, 1, 0, 700),
        (THREAD_ALL, False, 1, 300, 300),
        (THREAD_VARIABLE, False, 1, 0, 200),
        (0, True, 1, 0, 700),
        (0, True, 1, 300, 300),
        (0, True, 0.5, 0, 50),
    ],
)
def test_thread_modes_and_selfish_services_size_frames(
    mode: int, selfish: bool, cores: float, most: int, expected: int
) -> None:
    one = layer(0, cores=cores, cores_max=most, selfish=selfish)
    (placement,) = run([host(0, cores=8, idle=7, mode=mode)], [one]).placements
    assert placement.ask.cores == expected


def test_a_selfish_frame_takes_no_more_than_its_caps_leave() -> None:
    shares = {("show", "alloc"): Share(100, 350, 0)}
    (placement,) = run([host(0, cores=8)], [layer(0, selfish=True)], caps(shows=shares)).placements
    assert placement.ask.cores == 300


def test_a_selfish_frame_owns_its_host_for_the_rest_of_the_plan() -> None:
    hosts = [host(0, cores=8), host(1, cores=8)]
    made = run(hosts, [layer(0, waiting=2, selfish=True, priority=10_000), layer(1, waiting=99)])
    assert sum(p.ask.cores for p in made.placements) == 1600
    assert min(one.idle_cores for one in hosts) >= 0


@pytest.mark.parametrize(("cores", "idle", "expected"), [(0, 8, 800), (-2, 8, 600), (0, 7, 0), (-2, 7, 0), (-8, 8, 0)])
def test_requests_of_zero_and_less_want_an_empty_host(cores: int, idle: int, expected: int) -> None:
    made = run([host(0, cores=8, idle=idle)], [layer(0, cores=cores)])
    assert sum(p.ask.cores for p in made.placements) == expected


def test_a_host_short_of_memory_takes_nothing() -> None:
    state = State(short_mem=frozenset({"host0"}), live={"layer0": {"host0": 3}})
    made = run([host(0, cores=8)], [layer(0)], state=state)
    assert not made.placements
    assert why(made, 0) == {"host short of memory": 1}
    assert by_layer(run([host(0, cores=8), host(1)], [layer(0)], state=state)) == Counter({0: 1})
