"""Reservations and backfill (reference section 3.2): wide work gets in, and never at the price of an idle farm."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.model import Busy, Host, Layer, Limit, Peaks, Plan, Reservation, Settings, State
from tests.unit.build import GIB, by_host, caps, host, layer, run, why

MINUTES_5 = 300_000  # ms


def owed(*names: str, **other: object) -> State:
    """A state in which these layers were blocked long enough, but for this tick."""
    return State(now_s=1000.0, elapsed_ms=1000, debts=dict.fromkeys(names, MINUTES_5 - 1000))._replace(**other)


def held(index: int, order: int, priority: int = 1) -> Reservation:
    return Reservation(f"host{index}", f"layer{order}", priority, 0, 0.0)


def busy_hosts(count: int, cores: int = 64, idle: int = 4) -> list[Host]:
    return [host(n, cores=cores, gib=256, idle=idle) for n in range(count)]


def granted(made: Plan) -> Counter[str]:
    return Counter(grant.pk_layer for grant in made.grants)


def test_a_wide_layer_reserves_once_it_was_blocked_for_five_minutes() -> None:
    wide = [layer(0, cores=64, priority=7)]
    before = run(busy_hosts(2), wide, state=owed("layer0")._replace(debts={"layer0": MINUTES_5 - 1001}))
    assert before.debts == {"layer0": MINUTES_5 - 1}
    assert not before.grants
    made = run(busy_hosts(2), wide, state=owed("layer0"))
    assert made.grants == (Reservation("host0", "layer0", 7, 6400, 1000.0),)
    assert (made.requested, made.held) == (1, 1)


def test_debt_grows_while_blocked_and_decays_as_fast_while_it_places() -> None:
    state = owed("layer0")._replace(debts={"layer0": 5000})
    assert run(busy_hosts(1), [layer(0, cores=64)], state=state).debts == {"layer0": 6000}
    assert run([host(0, cores=64)], [layer(0, cores=64, waiting=2)], state=state).debts == {"layer0": 4000}
    assert run([host(0, cores=64)], [layer(0, cores=64, waiting=2)], state=state._replace(elapsed_ms=9000)).debts == {}


def test_debt_falls_for_a_layer_at_its_cap_and_ends_for_one_that_left() -> None:
    state = owed("layer0")._replace(debts={"layer0": 5000, "gone": 5000, "layer1": 5000})
    layers = [layer(0, cores=64), layer(1, cores=64, gates=("job paused",))]
    assert run(busy_hosts(1), layers, caps(jobs={"job0": (100, 0)}), state=state).debts == {"layer0": 4000}


def test_debt_grows_though_others_take_the_licence_meanwhile() -> None:
    bound = caps(limits={"k": Limit("k", False, 2, -1, 0)}, layer_limits={"layer0": ("k",), "layer1": ("k",)})
    made = run(busy_hosts(1), [layer(0, cores=64), layer(1, waiting=9)], bound, state=State(elapsed_ms=1000))
    assert made.waits[0].reason == "no_license"
    assert made.debts == {"layer0": 1000}


def test_debt_ends_at_twice_the_threshold() -> None:
    state = owed("layer0")._replace(debts={"layer0": 2 * MINUTES_5 - 1})
    assert run(busy_hosts(1), [layer(0, cores=64)], state=state).debts == {"layer0": 2 * MINUTES_5}


def test_only_layers_as_wide_as_half_of_the_largest_host_reserve() -> None:
    hosts = [host(0, cores=64, gib=256, idle=0), host(1, cores=16, gib=64, idle=0)]
    layers = [layer(0, cores=32), layer(1, cores=31), layer(2, cores=1, gib=128), layer(3, cores=0)]
    made = run(hosts, layers, state=owed("layer0", "layer1", "layer2", "layer3"))
    assert made.requested == 3
    assert "layer1" not in made.debts


def test_reservations_hold_half_of_the_hosts_that_fit_at_most() -> None:
    made = run(busy_hosts(10), [layer(0, cores=64, waiting=99)], state=owed("layer0"))
    assert made.held == 5
    few = run(busy_hosts(10), [layer(0, cores=64, waiting=3)], state=owed("layer0"))
    assert few.held == 3


def test_the_class_cap_counts_what_others_hold() -> None:
    state = owed("layer0", reservations=tuple(held(n, 1) for n in range(4)))
    made = run(busy_hosts(10), [layer(0, cores=64, waiting=9), layer(1, cores=64, waiting=9)], state=state)
    assert made.held == 5
    assert granted(made) == {"layer0": 1}


def test_a_single_fitting_host_may_be_held() -> None:
    made = run([*busy_hosts(1), host(1, cores=16, idle=0)], [layer(0, cores=64)], state=owed("layer0"))
    assert [grant.pk_host for grant in made.grants] == ["host0"]


def test_eight_layers_hold_reservations_at_most() -> None:
    layers = [layer(n, cores=64) for n in range(12)]
    made = run(busy_hosts(40), layers, state=owed(*(f"layer{n}" for n in range(12))))
    assert made.requested == 12
    assert len(granted(made)) == 8


def test_grants_are_drawn_by_priority_and_leave_the_low_a_chance() -> None:
    first: Counter[str] = Counter()
    for seed in range(600):
        layers = [layer(0, cores=64, priority=200), layer(1, cores=64, priority=100)]
        first += granted(run(busy_hosts(2), layers, state=owed("layer0", "layer1"), seed=seed))
    assert abs(first["layer0"] - 400) < 50


def test_the_target_is_the_host_likely_to_free_soonest() -> None:
    def procs(*ends: float) -> tuple[Busy, ...]:
        return tuple(Busy(end, 3000, GIB, 0, 0) for end in ends)

    unknown = float("inf")
    hosts = busy_hosts(4)
    by_procs = {
        "host0": procs(unknown, unknown), "host1": procs(unknown), "host2": procs(unknown, unknown, unknown),
        "host3": procs(unknown, unknown),
    }  # fmt: skip
    made = run(hosts, [layer(0, cores=64)], state=owed("layer0", ready=by_procs))
    assert [grant.pk_host for grant in made.grants] == ["host1"]
    by_end = {**by_procs, "host3": procs(1500.0, 1400.0)}
    made = run(busy_hosts(4), [layer(0, cores=64)], state=owed("layer0", ready=by_end))
    assert [grant.pk_host for grant in made.grants] == ["host3"]


def test_a_held_host_takes_its_owner_alone() -> None:
    state = State(now_s=1000.0, reservations=(held(0, 0),))
    layers = [layer(0, cores=64), layer(1, waiting=99, priority=1000)]
    made = run([host(0, cores=64, gib=256), host(1)], layers, state=state)
    assert {(p.layer, p.host) for p in made.placements} == {(0, 0), (1, 1)}
    assert made.releases == ("host0",)
    draining = run([host(0, cores=64, gib=256, idle=63), host(1)], layers, state=state)
    assert by_host(draining) == {1: 4}
    assert not draining.releases
    assert draining.held == 1


def test_holds_are_firm_against_higher_priorities_that_ask() -> None:
    state = owed("layer1", reservations=(held(0, 0),))
    made = run(busy_hosts(1), [layer(0, cores=64), layer(1, cores=64, priority=1000)], state=state)
    assert not made.grants
    assert not made.releases


@pytest.mark.parametrize(
    "owner",
    [
        layer(0, cores=64, gates=("job paused",)),
        layer(0, cores=64, priority=50),
        layer(0, cores=64, pk_layer="another"),
        layer(0, cores=64, groups=frozenset({7})),
        layer(0, cores=65),
        layer(0, cores=31, priority=1),
    ],
    ids=["paused", "re-prioritised", "gone", "moved", "too wide now", "wide no more"],
)
def test_an_owner_that_changed_releases_its_host_in_the_next_tick(owner: Layer) -> None:
    made = run(busy_hosts(1), [owner, layer(1, waiting=9)], state=State(now_s=1000.0, reservations=(held(0, 0),)))
    assert made.releases == ("host0",)
    assert by_host(made, 1) == {0: 4}


def test_a_hold_serves_the_frames_that_ask_for_more_and_where_these_do_not_fit_the_others() -> None:
    state = State(now_s=1000.0, reservations=(held(0, 0),))
    for ask, owner in ((200, 1), (300, 0)):
        layers = [layer(0, cores=64, gib=10), layer(1, cores=64, gib=ask, ask=ask * GIB, pk_layer="layer0")]
        made = run([host(0, cores=64, gib=256)], layers, state=state)
        assert [p.layer for p in made.placements] == [owner]
    draining = run(busy_hosts(1), layers, state=state)
    assert (draining.held, draining.releases) == (1, ())


def test_an_owner_that_is_narrow_beside_a_larger_host_gives_its_host_back() -> None:
    state = State(now_s=1000.0, reservations=(held(0, 0),))
    assert not run(busy_hosts(1), [layer(0, cores=32)], state=state).releases
    assert run([*busy_hosts(1), host(1, cores=65, idle=0)], [layer(0, cores=32)], state=state).releases == ("host0",)


def test_an_owner_at_its_caps_releases_its_hosts_once_it_owes_nothing() -> None:
    state = State(now_s=1000.0, elapsed_ms=1000, reservations=(held(0, 0),), debts={"layer0": 1001})
    capped = caps(jobs={"job0": (100, 0)})
    assert not run(busy_hosts(1), [layer(0, cores=64)], capped, state=state).releases
    state = state._replace(debts={"layer0": 1000})
    assert run(busy_hosts(1), [layer(0, cores=64)], capped, state=state).releases == ("host0",)


def test_surplus_hosts_are_released_least_drained_first() -> None:
    hosts = [host(n, cores=64, gib=256, idle=idle) for n, idle in enumerate((10, 30, 20))]
    state = State(reservations=tuple(held(n, 0) for n in range(3)))
    assert run(hosts, [layer(0, cores=64)], state=state).releases == ("host2", "host0")


def test_reservations_off_releases_everything_and_counts_no_debt() -> None:
    state = owed("layer0", reservations=(held(0, 0),))
    made = run(busy_hosts(1), [layer(0, cores=64)], knobs=Settings(reservations_enabled=False), state=state)
    assert made.releases == ("host0",)
    assert not made.debts
    assert not made.grants


def draining(idle: int, runs: dict[str, float], ready: tuple[Busy, ...]) -> tuple[list[Host], State]:
    """Host 0 is held for a layer that lacks memory on it, 200 GiB of which end at 2000."""
    hosts = [host(0, cores=64, gib=256, idle=idle, idle_gib=30)]
    state = State(now_s=1000.0, reservations=(held(0, 0),), ready={"host0": ready}, run_seconds=runs)
    return hosts, state


OWNER = layer(0, cores=32, gib=200)
KNOWN = (Busy(2000.0, 100, 220 * GIB, 0, 0),)


@pytest.mark.parametrize(
    ("idle", "runs", "ready", "borrowed"),
    [
        (40, {"layer1": 900.0}, KNOWN, 8),
        (40, {"layer1": 1001.0}, KNOWN, 0),
        (40, {}, KNOWN, 0),
        (31, {"layer1": 10.0}, KNOWN, 0),
        (40, {"layer1": 10.0}, (Busy(float("inf"), 100, 220 * GIB, 0, 0),), 0),
        (40, {"layer1": 10.0}, (), 0),
    ],
    ids=["ends in time", "ends too late", "no history", "drain guard", "owner may start any time", "nothing known"],
)
def test_backfill_borrows_only_what_comes_back_in_time(
    idle: int, runs: dict[str, float], ready: tuple[Busy, ...], borrowed: int
) -> None:
    hosts, state = draining(idle, runs, ready)
    made = run(hosts, [OWNER, layer(1, waiting=8)], state=state)
    assert sum(p.backfill for p in made.placements) == len(made.placements) == borrowed
    assert not made.releases


def test_backfill_never_takes_the_cores_that_the_owner_waits_for() -> None:
    hosts, state = draining(34, {"layer1": 10.0}, KNOWN)
    # The third frame would find 32 idle cores and leave 31; the guard looks before each.
    assert len(run(hosts, [OWNER, layer(1, waiting=8)], state=state).placements) == 3


def test_backfill_off_leaves_held_hosts_alone() -> None:
    hosts, state = draining(40, {"layer1": 10.0}, KNOWN)
    made = run(hosts, [OWNER, layer(1, waiting=8)], knobs=Settings(backfill_enabled=False), state=state)
    assert not made.placements


def test_a_layer_kept_off_by_a_hold_waits_as_held() -> None:
    state = State(now_s=1000.0, reservations=(held(0, 0),))
    made = run([host(0, cores=64, idle=32)], [layer(0, cores=64), layer(1)], state=state)
    assert made.waits[1].reason == "held"
    assert why(made, 1) == {"reserved for another layer": 1}
    assert made.waits[0].reason == "capacity"


def strand(knobs: Settings) -> int:
    """A 64-core layer beside an endless stream of small frames that free one core each; when does it start?"""
    running = [[(index * 7 + n) % 40 + 1 for n in range(64)] for index in range(3)]  # ticks left, by host
    state = State(now_s=0.0, elapsed_ms=10_000)
    for tick in range(200):
        hosts = [host(n, cores=64, gib=256, idle=64 - len(left)) for n, left in enumerate(running)]
        layers = [layer(0, cores=64, priority=1), layer(1, waiting=500, priority=500)]
        made = run(hosts, layers, knobs=knobs, seed=tick, state=state)
        for placement in made.placements:
            if placement.layer == 0:
                return tick
            running[placement.host].append(20)
        running = [[left - 1 for left in one if left > 1] for one in running]
        kept = [one for one in state.reservations if one.pk_host not in made.releases]
        state = state._replace(
            now_s=state.now_s + 10, debts=made.debts, reservations=(*kept, *made.grants),
            peaks={"layer1": Peaks(GIB, 8)},
        )  # fmt: skip
    return -1


def test_a_64_core_frame_gets_in_beside_a_flood_of_small_frames() -> None:
    assert strand(Settings(reservations_enabled=False, mem_per_core=4 * GIB)) == -1
    started = strand(Settings(mem_per_core=4 * GIB))
    # Five minutes blocked (30 ticks), then at most 40 ticks until the host has drained.
    assert 30 <= started <= 72
