"""Where a frame goes when hosts have something for it (reference sections 3.1, 3.6, 3.7)."""

from __future__ import annotations

import gc

import pytest

from planner.model import CACHE_WARM, COLD, LIVE_WARM, Limit, Peaks, Settings, State
from planner.places import Live, warm
from planner.score import total
from tests.unit.build import GIB, by_host, caps, host, layer, run, why


def test_a_score_is_the_sum_of_its_recorded_terms() -> None:
    hosts = [host(0, gpus=2, gpu_gib=8), host(1)]
    made = run(hosts, [layer(0, waiting=3, gpus=1, gpu_gib=1)], state=State(live={"layer0": {"host0": 1}}))
    assert made.placements
    for placement in made.placements:
        terms = placement.terms
        assert placement.score == total(terms)
        assert min(terms.cores, terms.mem, terms.gpus, terms.gpu_mem) > 0
        assert terms.locality == -8.0


def test_score_weights_are_settings() -> None:
    hosts = [host(0, cores=4, gib=64), host(1, cores=8, gib=8)]
    assert by_host(run(hosts, [layer(0)], knobs=Settings(weight_cores=0))) == {0: 1}
    hosts = [host(0, cores=4, gib=64), host(1, cores=8, gib=8)]
    assert by_host(run(hosts, [layer(0)], knobs=Settings(weight_mem=0))) == {1: 1}


def test_a_host_that_runs_the_layer_is_preferred() -> None:
    hosts = [host(0, cores=64), host(1, cores=4, idle=1, idle_gib=2)]
    made = run(hosts, [layer(0)], state=State(live={"layer0": {"host1": 3}}))
    assert [(p.host, p.warmth) for p in made.placements] == [(1, LIVE_WARM)]


def test_locality_off_places_as_if_nothing_ran_and_still_counts_kinds() -> None:
    hosts = [host(0, cores=64), host(1, cores=4, idle=1, idle_gib=2)]
    state = State(live={"layer0": {"host1": 3}})
    made = run(hosts, [layer(0)], knobs=Settings(locality_enabled=False), state=state)
    assert [(p.host, p.warmth) for p in made.placements] == [(0, COLD)]


def test_locality_never_places_where_a_frame_does_not_fit() -> None:
    hosts = [host(0), host(1, idle=0), host(2, idle_gib=0)]
    assert by_host(run(hosts, [layer(0)], state=State(live={"layer0": {"host1": 1, "host2": 1}}))) == {0: 1}


@pytest.mark.parametrize(("foreign", "bonus"), [(0, 8.0), (16, 6.0), (63, 0.125)])
def test_cache_warmth_decays_with_foreign_frames(foreign: int, bonus: float) -> None:
    made = run([host(0), host(1)], [layer(0)], state=State(warm={"layer0": {"host1": foreign}}))
    (placement,) = made.placements
    assert placement.warmth == CACHE_WARM
    assert placement.terms.locality == -bonus


def test_warmth_ends_at_the_window_and_with_a_window_of_zero() -> None:
    for foreign, window in ((64, 64), (70, 64), (0, 0)):
        knobs = Settings(locality_window_frames=window)
        made = run([host(0), host(1)], [layer(0)], knobs=knobs, state=State(warm={"layer0": {"host1": foreign}}))
        assert [(p.host, p.warmth) for p in made.placements] == [(0, COLD)]


def test_c_has_lost_its_pull_after_seven_rounds_of_ten_frames_of_a_and_b() -> None:
    """The reference's example: A and B book ten frames a round on the host that C has left; the window is 64."""
    pulls = []
    for rounds in range(8):
        made = run([host(0, cores=32), host(1, cores=32)], [layer(2)._replace(order=0)],
                   state=State(warm={"layer2": {"host1": 10 * rounds}}))  # fmt: skip
        pulls.append(-made.placements[0].terms.locality)
    assert pulls == [8.0 * (1 - rounds * 10 / 64) for rounds in range(7)] + [0.0]


def test_live_tenants_outrank_a_layer_that_comes_back() -> None:
    """A and B live on the 32-core host, C left it 30 frames ago: C's pull is decayed, the tenants' is full."""
    state = State(
        live={"layer0": {"host0": 6}, "layer1": {"host0": 4}},
        warm={"layer2": {"host0": 30}},
    )
    made = run([host(0, cores=32, idle=3), host(1, cores=32)], [layer(n) for n in range(3)], state=state)
    terms = {p.layer: (p.host, p.terms.locality) for p in made.placements}
    assert terms == {0: (0, -8.0), 1: (0, -8.0), 2: (0, -8.0 * (1 - 30 / 64))}


def test_a_drained_idle_host_pulls_all_its_layers_back_at_full_strength() -> None:
    """A, B and C left; nothing was booked there since, however long ago: the first with work is steered back."""
    state = State(warm={f"layer{n}": {"host1": 0} for n in range(3)})
    made = run([host(0, cores=32), host(1, cores=32)], [layer(n, waiting=2) for n in range(3)], state=state)
    assert by_host(made) == {1: 6}


def test_a_seat_attracts_with_a_bonus_for_each_limit_held() -> None:
    limits = {
        "a": Limit("a", True, 9, -1, 2, frozenset({"host1", "host2"})),
        "b": Limit("b", True, 9, -1, 1, frozenset({"host2"})),
    }
    bound = caps(limits=limits, layer_limits={"layer0": ("a", "b")})
    (placement,) = run([host(n) for n in range(3)], [layer(0)], bound).placements
    assert (placement.host, placement.terms.seat) == (2, -32.0)


def test_a_layer_may_hold_a_quarter_of_a_host_but_eight_frames_at_least() -> None:
    made = run([host(0, cores=64, gib=512)], [layer(0, waiting=99)])
    assert by_host(made) == {0: 16}
    assert made.waits[0].reason == "flowing"
    assert by_host(run([host(0, cores=16)], [layer(0, waiting=99)])) == {0: 8}


def test_the_host_share_counts_frames_that_run_already() -> None:
    state = State(live={"layer0": {"host0": 7}})
    assert by_host(run([host(0, cores=16), host(1, cores=16)], [layer(0, waiting=4)], state=state)) == {0: 1, 1: 3}


def test_the_host_share_yields_for_proven_memory_when_nothing_else_blocks() -> None:
    state = State(peaks={"layer0": Peaks(GIB, 4)})
    hosts = [host(n, cores=16) for n in range(3)]
    made = run(hosts, [layer(0, waiting=99)], knobs=Settings(mem_per_core=4 * GIB), state=state)
    assert by_host(made) == {0: 16, 1: 16, 2: 16}
    made = run([host(n, cores=16) for n in range(3)], [layer(0, waiting=99)])
    assert by_host(made) == {0: 8, 1: 8, 2: 8}


def test_a_layer_at_its_host_share_says_so() -> None:
    made = run([host(0, cores=16, idle=8)], [layer(0, waiting=9)], state=State(live={"layer0": {"host0": 8}}))
    assert not made.placements
    assert made.waits[0].reason == "limit"
    assert why(made, 0)["layer_host_max_frac"] == 1
    no_cap = Settings(layer_host_max_frac=0)
    assert by_host(run([host(0, cores=16)], [layer(0, waiting=99)], knobs=no_cap)) == {0: 16}


def test_a_plan_with_warm_hosts_frees_itself_without_the_collector() -> None:
    """Ticks run with the collector off: what refers back to itself would have it walk through all there is."""
    gc.collect()
    gc.disable()
    try:
        made = run(
            [host(0), host(1)], [layer(0, waiting=20), layer(1, waiting=20)],
            state=State(live={"layer0": {"host1": 3}, "layer1": {"host0": 9}}),
        )  # fmt: skip
        assert made.placements
        del made
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_procs_as_the_database_lists_them_by_host_are_told_by_layer() -> None:
    live = Live(["host0", "host1"], ["a,b,a", "a"])
    assert dict(live) == {"a": {"host0": 2, "host1": 1}, "b": {"host0": 1}}
    assert ("b" in live, "c" in live, live.get("c"), len(live)) == (True, False, None, 2)
    assert warm(["a", "b", "a"], ["host0", "host0", "host1"], [3, 0, 5]) == {
        "a": {"host0": 3, "host1": 5}, "b": {"host0": 0},
    }  # fmt: skip
