"""Whose turn it is: priority as a rate, fair share among shows, fifo within one (reference section 3.5)."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.draw import crowded_groups
from planner.model import Settings, Share
from planner.plan import CLOCK_EVERY, plan
from tests.unit.build import NO_CAP, by_host, by_layer, caps, host, layer, run

# Chi-square with 3 degrees of freedom: 11.3 is passed by chance once in a hundred.
CHI_SQUARE_3 = 11.345
UNSHARED = Settings(layer_host_max_frac=0)  # one layer may have a whole host


def winners(rounds: int, knobs: Settings, *priorities: int) -> Counter[int]:
    """Who gets the one free slot of each round."""
    won: Counter[int] = Counter()
    for seed in range(rounds):
        layers = [layer(order, waiting=9, priority=priority) for order, priority in enumerate(priorities)]
        won += by_layer(run([host(0, cores=1)], layers, knobs=knobs, seed=seed))
    return won


@pytest.mark.parametrize("fair", [True, False])
def test_a_priority_of_120_wins_55_percent_against_100(fair: bool) -> None:
    won = winners(2000, Settings(fair_share=fair), 120, 100)
    # Mean 120/220 of 2000 draws with a deviation of 22: four deviations either way.
    assert abs(won[0] - 2000 * 120 / 220) < 90


def test_slots_follow_priorities_by_chi_square() -> None:
    priorities, rounds = (10, 50, 100, 400), 2000
    won = winners(rounds, Settings(), *priorities)
    expected = [rounds * priority / sum(priorities) for priority in priorities]
    assert sum((won[n] - e) ** 2 / e for n, e in enumerate(expected)) < CHI_SQUARE_3


def test_a_priority_of_zero_or_less_still_draws_the_least_share() -> None:
    won = winners(1000, Settings(), -7, 1)
    assert abs(won[0] - 500) < 64


def test_fair_share_gives_the_slot_to_the_show_lowest_against_its_size() -> None:
    shares = {("big", "alloc"): Share(9500, NO_CAP, 0), ("small", "alloc"): Share(500, NO_CAP, 0)}
    layers = [layer(0, waiting=500, priority=200, show="big"), layer(1, waiting=500, priority=1, show="small")]
    made = by_layer(run([host(n, cores=10) for n in range(10)], layers, caps(shows=shares), UNSHARED))
    assert made[0] == 95
    assert made[1] == 5


def test_fair_share_counts_what_the_show_runs_already() -> None:
    shares = {("full", "alloc"): Share(1000, NO_CAP, 1000), ("idle", "alloc"): Share(1000, NO_CAP, 0)}
    layers = [layer(0, waiting=50, priority=200, show="full"), layer(1, waiting=50, show="idle")]
    assert by_layer(run([host(0, cores=10)], layers, caps(shows=shares), UNSHARED)) == {1: 10}


def test_fair_share_never_passes_the_burst() -> None:
    shares = {("a", "alloc"): Share(1000, 300, 0), ("b", "alloc"): Share(10, NO_CAP, 0)}
    layers = [layer(0, waiting=50, show="a"), layer(1, waiting=50, show="b")]
    made = run([host(0, cores=10)], layers, caps(shows=shares))
    assert by_layer(made) == {0: 3, 1: 7}
    assert made.waits[0].reason == "flowing"


def test_a_show_without_size_gets_what_the_others_leave() -> None:
    shares = {("sized", "alloc"): Share(1000, NO_CAP, 5000), ("none", "alloc"): Share(0, NO_CAP, 0)}
    layers = [layer(0, waiting=3, show="sized"), layer(1, waiting=50, show="none")]
    assert by_layer(run([host(0, cores=10)], layers, caps(shows=shares))) == {0: 3, 1: 7}


def test_without_fair_share_the_lottery_is_over_all_shows() -> None:
    shares = {("a", "alloc"): Share(9999, NO_CAP, 0), ("b", "alloc"): Share(1, NO_CAP, 0)}
    layers = [layer(0, waiting=999, priority=100, show="a"), layer(1, waiting=999, priority=100, show="b")]
    knobs = UNSHARED._replace(fair_share=False)
    made = by_layer(run([host(0, cores=400, gib=4000)], layers, caps(shows=shares), knobs))
    assert abs(made[0] - 200) < 40


def test_fifo_serves_the_oldest_job_of_a_priority_first() -> None:
    layers = [
        layer(0, waiting=3, job_started_s=30.0),
        layer(1, waiting=3, job="old", job_started_s=10.0, dispatch_order=2),
        layer(2, waiting=3, job="old", job_started_s=10.0, dispatch_order=1),
    ]
    for knobs in (Settings(fifo=True), Settings(fifo_shows=frozenset({"show"}))):
        made = run([host(0, cores=7)], layers, knobs=knobs)
        assert [p.layer for p in made.placements] == [2, 2, 2, 1, 1, 1, 0]


def test_fifo_leaves_the_share_of_other_priorities_alone() -> None:
    won: Counter[int] = Counter()
    for seed in range(1000):
        layers = [
            layer(0, waiting=9, priority=100, job_started_s=1.0),
            layer(1, waiting=9, priority=100, job_started_s=2.0),
            layer(2, waiting=9, priority=200, job_started_s=3.0),
        ]
        won += by_layer(run([host(0, cores=1)], layers, knobs=Settings(fifo=True), seed=seed))
    assert won[1] == 0
    assert abs(won[0] - 500) < 64


def test_a_cut_never_takes_the_oldest_of_a_fifo_class() -> None:
    for seed in range(50):
        layers = [layer(order, job_started_s=float(order)) for order in range(20)]
        knobs = Settings(fifo=True, layer_candidates_per_group_max=3)
        made = run([host(0, cores=2)], layers, knobs=knobs, seed=seed)
        assert [p.layer for p in made.placements] == [0, 1]


def test_candidates_beyond_the_cut_are_counted_and_say_so() -> None:
    made = run([host(0)], [layer(n) for n in range(5)], knobs=Settings(layer_candidates_per_group_max=2))
    assert made.cut == 3
    assert len(made.placements) == 2
    assert all("beyond layer_candidates_per_group_max" in {r.reason for r in w.reasons} for w in made.waits.values())


def test_a_tick_out_of_time_keeps_what_it_placed_and_says_so() -> None:
    from planner.plan import plan

    asked = iter([False, True])
    hosts = [host(n, cores=10_000, gib=1 << 20) for n in range(2)]
    made = plan(hosts, [layer(0, waiting=1000)], caps(), Settings(), 1, lambda: next(asked))
    assert made.out_of_time
    assert 0 < len(made.placements) < 1000


def test_a_frame_that_no_host_can_hold_charges_nothing_and_holds_up_nobody() -> None:
    """P25: hosts of 1 and 2 cores; caps that 1.5 would fill never keep 0.5 from starting."""
    for seed in range(50):
        hosts = [host(0, cores=1), host(1, cores=2, idle=1)]
        layers = [layer(0, cores=1.5, waiting=9, priority=1000, job="j"), layer(1, cores=0.5, waiting=9, job="j")]
        shares = {("show", "alloc"): Share(100, 200, 0)}
        made = run(hosts, layers, caps(jobs={"j": (200, 0)}, shows=shares), seed=seed)
        assert by_layer(made) == {1: 4}


def test_only_crowded_groups_are_cut() -> None:
    hosts = [host(0, cores=1), host(1, cores=1, group=1)]
    crowd = [layer(n, priority=1000) for n in range(4)]
    both = layer(4, groups=frozenset({0, 1}))
    made = run(hosts, [*crowd, both], knobs=Settings(layer_candidates_per_group_max=2))
    assert crowded_groups([one.groups for one in (*crowd, both)], 2) == {0}
    assert (made.cut, by_layer(made)[4]) == (3, 1)


def test_draws_end_when_no_host_has_room_for_the_smallest_frame() -> None:
    looks = []

    def out_of_time() -> bool:
        looks.append(1)
        return False

    layers = [layer(order, waiting=2, gib=2) for order in range(CLOCK_EVERY * 4)]
    hosts = [host(0, cores=4), host(1, cores=16, gib=5)]  # full by cores, and by memory
    made = plan(hosts, layers, caps(), Settings(), 1, out_of_time)
    assert by_host(made) == {0: 4, 1: 2}
    assert not looks
    assert len(made.waits) == len(layers)
