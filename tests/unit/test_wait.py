"""Why a layer waits (reference section 3.8): one bucket, all reasons, and the hosts that each rules out."""

from __future__ import annotations

from typing import Any

import pytest

from planner import tick
from planner.model import Limit, Settings, Share, State
from tests.unit.build import by_host, caps, host, layer, run, why

SHOW = "show"


def bucket(*args: Any, **other: Any) -> str:
    return run(*args, **other).waits[0].reason


def test_three_causes_at_once_are_all_listed_with_their_hosts() -> None:
    hosts = [host(0, cores=4), host(1, idle=1, cores=16), host(2, cores=16), host(3, cores=16, gib=64, idle_gib=1)]
    state = State(short_mem=frozenset({"host2"}))
    one = layer(0, cores=8, gib=4, misfits=(("os", 5),))
    made = run(hosts, [one], state=state)
    assert why(made, 0) == {
        "host too small": 1, "idle cores": 2, "idle memory": 1, "host short of memory": 1, "os": 5,
    }  # fmt: skip
    assert made.waits[0].reason == "no_fit"


@pytest.mark.parametrize(
    ("expected", "made_of"),
    [
        ("capacity", {"hosts": [host(0, idle=0)], "layers": [layer(0)]}),
        ("no_fit", {"hosts": [host(0, idle=2), host(1, idle=2)], "layers": [layer(0, cores=3)]}),
        ("no_fit", {"hosts": [host(0, idle_gib=1)], "layers": [layer(0, gib=2)]}),
        ("no_host", {"hosts": [host(0)], "layers": [layer(0, cores=5)]}),
        ("no_host", {"hosts": [host(0)], "layers": [layer(0, groups=frozenset())]}),
        ("limit", {"hosts": [host(0)], "layers": [layer(0)], "limits": caps(jobs={"job0": (99, 0)})}),
        ("limit", {"hosts": [host(0)], "layers": [layer(0)], "limits": caps(folders={"folder": (99, 0)})}),
        ("limit", {"hosts": [host(0)], "layers": [layer(0)], "limits": caps(shows={(SHOW, "alloc"): Share(9, 9, 9)})}),
        ("limit", {"hosts": [host(0)], "layers": [layer(0, gates=("job paused",))]}),
        ("no_host", {"hosts": [host(0)], "layers": [layer(0, groups=frozenset(), gates=("tags",))]}),
        (
            "no_license",
            {
                "hosts": [host(0)],
                "layers": [layer(0)],
                "limits": caps(limits={"k": Limit("k", False, 1, -1, 1)}, layer_limits={"layer0": ("k",)}),
            },
        ),
        ("flowing", {"hosts": [host(0, cores=1)], "layers": [layer(0, waiting=2)]}),
    ],
)
def test_each_wait_falls_into_its_bucket(expected: str, made_of: dict[str, Any]) -> None:
    assert bucket(**made_of) == expected


def test_a_cap_is_named_beside_what_the_hosts_lack() -> None:
    made = run([host(0, idle=0)], [layer(0)], caps(jobs={"job0": (0, 0)}, folders={"folder": (0, 0)}))
    assert why(made, 0) == {"job cores": 1, "folder cores": 1, "idle cores": 1}
    assert made.waits[0].reason == "limit"


def test_the_burst_counts_the_hosts_of_its_allocation() -> None:
    hosts = [host(0), host(1), host(2, alloc="other", group=1, idle=0)]
    shares = {("show", "alloc"): Share(0, 0, 0), ("show", "other"): Share(100, 10_000, 0)}
    made = run(hosts, [layer(0, groups=frozenset({0, 1}))], caps(shows=shares))
    assert why(made, 0) == {"subscription burst": 2, "idle cores": 1}


def test_counts_of_what_is_idle_are_rounded_on_a_large_farm() -> None:
    hosts = [host(n, idle=0 if n < 1234 else 4, idle_gib=0 if n >= 1234 else 4) for n in range(1500)]
    assert why(run(hosts, [layer(0)]), 0) == {"idle cores": 1200, "idle memory": 260}


def test_dispatch_caps_are_named() -> None:
    made = run([host(0, cores=8)], [layer(0, waiting=9, job="j"), layer(1, waiting=9, job="j")], knobs=Settings(
        job_frame_dispatch_max=2,
    ))  # fmt: skip
    assert len(made.placements) == 2
    late = next((order for order in (0, 1) if made.waits[order].reason != "flowing"), None)
    assert late is None or why(made, late)["job_frame_dispatch_max"] == 1
    knobs = Settings(host_frame_dispatch_max=1)
    made = run([host(0, cores=8)], [layer(0, waiting=9), layer(1, waiting=9)], knobs=knobs)
    assert len(made.placements) == 1
    blocked = 1 - made.placements[0].layer
    assert why(made, blocked)["host_frame_dispatch_max"] == 1


def test_stranded_cores_are_those_that_no_waiting_layer_can_use() -> None:
    hosts = [host(0, cores=8, gib=8, idle_gib=1), host(1, cores=8, idle=3), host(2, cores=8, group=1)]
    made = run(hosts, [layer(0, cores=4, gib=2, waiting=9)])
    assert made.stranded == {"alloc": 1100}


def test_nothing_is_stranded_where_nothing_waits_or_a_cap_alone_stops_the_layer() -> None:
    assert run([host(0, cores=8, gib=1)], [layer(0, waiting=1)]).stranded == {}
    capped = caps(jobs={"job0": (0, 0)})
    assert run([host(0, cores=8)], [layer(0)], capped).stranded == {}
    assert run([host(0, cores=8, idle_gib=0)], [layer(0)], capped).stranded == {"alloc": 800}


def test_a_group_for_each_host_is_warned_about() -> None:
    made = run([host(n, group=n) for n in range(20)], [layer(0)])
    assert made.warnings[0][0] == "host groups"
    assert not run([host(n, group=n % 3) for n in range(20)], [layer(0)]).warnings


def test_waits_become_rows_with_their_reasons_as_json() -> None:
    found = [layer(0, cores=5), layer(1, waiting=9)]
    keys, kinds, buckets, reasons = tick.wait_rows(run([host(0)], found), found)
    assert (keys, kinds) == (["layer0", "layer1"], [1, 2])
    assert buckets == ["no_host", "flowing"]
    assert reasons[0] == '[{"reason": "host too small", "hosts": 1}, {"reason": "idle cores", "hosts": 1}]'


def test_a_layer_planned_and_never_booked_is_named_after_forty_ticks() -> None:
    found = [layer(0), layer(1)]
    hosts = [host(0)]
    whole = tick.decision(run(hosts, found), found, hosts)
    slot = whole.slot_layer.index(whole.layers.index("layer1") + 1)
    counts: dict[str, int] = {}
    named = []
    for number in range(1, 90):
        counts, warnings = tick.plan_zero(counts, whole, {slot: "dropped"}, Settings())
        named += [(number, warning["what"]) for warning in warnings]
    assert named == [(40, "layer layer1"), (80, "layer layer1")]
    assert tick.plan_zero(counts, whole, {}, Settings()) == ({}, [])
    assert tick.odometer(whole, {slot: "dropped"}) == {"host0": 1}


def test_a_plan_becomes_rows_of_frames_terms_and_warmth() -> None:
    found, hosts = [layer(0, waiting=3)], [host(0), host(1)]
    made = run(hosts, found, state=State(live={"layer0": {"host0": 1}}))
    assert by_host(made) == {0: 3}
    rows = tick.placement_rows(tick.decision(made, found, hosts), {2: "dropped"})
    assert (rows.layer, rows.host, rows.frames) == ([1, 1], [1, 1], [2, 1])
    assert rows.outcome == ["booked", "dropped"]
    assert rows.warmth == ["live_warm", "live_warm"]
    assert rows.terms[4] == [-8.0, -8.0]
    assert rows.backfill == [False, False]
