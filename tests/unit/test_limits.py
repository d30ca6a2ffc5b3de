"""Limits of both types, spent exactly across a tick (reference section 3.6, OpenCue semantics 9.2 to 9.4)."""

from __future__ import annotations

from planner.model import Limit, Settings
from tests.unit.build import by_host, by_layer, caps, host, layer, run, why


def seats(max_value: int, *holders: str, soft: int = -1) -> Limit:
    return Limit("maya", True, max_value, soft, len(holders), frozenset(holders))


def test_frames_of_all_bound_layers_spend_one_frame_limit() -> None:
    bound = caps(limits={"k": Limit("nuke", False, 10, -1, 3)}, layer_limits={"layer0": ("k",), "layer1": ("k",)})
    made = run([host(n) for n in range(9)], [layer(n, waiting=9) for n in range(3)], bound)
    counts = by_layer(made)
    assert counts[0] + counts[1] == 7
    assert counts[2] == 9


def test_a_layer_needs_room_in_all_of_its_limits() -> None:
    limits = {"a": Limit("a", False, 9, -1, 0), "b": Limit("b", False, 2, -1, 0)}
    made = run([host(0)], [layer(0, waiting=4)], caps(limits=limits, layer_limits={"layer0": ("a", "b")}))
    assert len(made.placements) == 2
    spent = {**limits, "b": Limit("b", False, 2, -1, 2)}
    made = run([host(0)], [layer(0, waiting=4)], caps(limits=spent, layer_limits={"layer0": ("a", "b")}))
    assert made.waits[0].reason == "no_license"
    assert why(made, 0) == {"limit b": 1}


def test_a_limit_that_is_not_given_does_not_block_and_one_of_zero_does() -> None:
    bound = {"layer0": ("stale",)}
    assert len(run([host(0)], [layer(0)], caps(layer_limits=bound)).placements) == 1
    closed = caps(limits={"stale": Limit("stale", False, 0, -1, 0)}, layer_limits=bound)
    assert not run([host(0)], [layer(0)], closed).placements


def test_a_host_limit_counts_machines_not_frames() -> None:
    bound = caps(limits={"k": seats(2)}, layer_limits={"layer0": ("k",)})
    made = run([host(n) for n in range(5)], [layer(0, waiting=99)], bound)
    assert sorted(by_host(made).values()) == [4, 4]


def test_layers_that_share_a_host_limit_share_its_machines() -> None:
    bound = caps(limits={"k": seats(2)}, layer_limits={f"layer{n}": ("k",) for n in range(4)})
    made = run([host(n) for n in range(6)], [layer(n, waiting=2) for n in range(4)], bound)
    assert sorted(by_host(made).values()) == [4, 4]


def test_with_all_seats_taken_only_holders_book() -> None:
    bound = caps(limits={"k": seats(1, "host3")}, layer_limits={"layer0": ("k",)})
    made = run([host(n, cores=16) for n in range(3)] + [host(3, cores=2)], [layer(0, waiting=9)], bound)
    assert by_host(made) == {3: 2}
    made = run([host(n) for n in range(3)] + [host(3, idle=0)], [layer(0, waiting=9)], bound)
    assert made.waits[0].reason == "no_license"
    assert why(made, 0)["limit maya"] == 3


def test_the_soft_value_is_the_threshold_when_set() -> None:
    for soft, machines in ((1, 1), (0, 0), (-1, 3)):
        bound = caps(limits={"k": seats(3, soft=soft)}, layer_limits={"layer0": ("k",)})
        assert len(by_host(run([host(n) for n in range(5)], [layer(0, waiting=99)], bound))) == machines


def test_the_seat_bonus_packs_limited_work_onto_few_machines() -> None:
    bound = caps(limits={"k": seats(9)}, layer_limits={"layer0": ("k",)})
    assert len(by_host(run([host(n) for n in range(9)], [layer(0, waiting=4)], bound))) == 1
    spread = Settings(host_limit_seat_bonus=0)
    assert len(by_host(run([host(n) for n in range(9)], [layer(0, waiting=4)], bound, spread))) == 4


def test_two_host_limits_need_a_seat_in_each() -> None:
    limits = {"a": seats(1, "host1"), "b": Limit("b", True, 1, -1, 1, frozenset({"host2"}))}
    bound = caps(limits=limits, layer_limits={"layer0": ("a", "b")})
    assert not run([host(n) for n in range(4)], [layer(0, waiting=9)], bound).placements
    limits = {"a": seats(1, "host1"), "b": Limit("b", True, 2, -1, 1, frozenset({"host2"}))}
    bound = caps(limits=limits, layer_limits={"layer0": ("a", "b")})
    assert by_host(run([host(n) for n in range(4)], [layer(0, waiting=9)], bound)) == {1: 4}
