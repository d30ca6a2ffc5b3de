"""Layer tags that are host names, and the reasons why such a layer may not run."""

from __future__ import annotations

from typing import Any

import pytest

from planner import tick
from planner.model import Caps, Plan, Settings, Share, State

GIB = 1 << 20
NO_CAP = 1 << 62


def host_row(name: str, **other: Any) -> dict[str, Any]:
    return {
        "pk_host": name, "str_name": name, "pk_alloc": "alloc", "pk_facility": "here", "str_tags": f"general {name}",
        "str_os": "linux,rocky", "int_thread_mode": 0, "int_cores": 400, "int_mem": 8 * GIB, "int_gpus": 0,
        "int_gpu_mem": 0, "int_cores_idle": 400, "int_mem_idle": 8 * GIB, "int_gpus_idle": 0, "int_gpu_mem_idle": 0,
        "short_mem": False, "refused": 0,
    } | other  # fmt: skip


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as the snapshot gives them."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def layer_row(
    tags: str, os: str = "linux", threadable: bool = True, gates: str | None = None, cores_min: int = 100
) -> dict[str, Any]:
    """Candidates: one layer, whose tags match no group."""
    kind = {
        "tags": tags, "os": os, "pk_facility": "here", "threadable": threadable, "groups": [], "misfits": [],
        "misfit_hosts": [], "gates": ["tags"],
    }  # fmt: skip
    layer = {
        "pk_layer": "layer", "job": 1, "kind": 1, "dispatch_order": 0, "waiting": 9, "running": 0, "completed": 0,
        "cores_min": cores_min, "cores_max": 0, "mem_min": GIB, "gpus_min": 0, "gpu_mem_min": 0, "selfish": False,
        "median_rss": 0, "samples": 0, "gates": gates, "job_key": "job", "job_show": "show", "job_folder": "folder",
        "job_priority": 1, "job_started_s": 0.0,
    }  # fmt: skip
    return columns([layer]) | {"kinds": [kind]}


HOSTS = [host_row("host06.studio.lan"), host_row("Host07"), host_row("far", pk_facility="there")]


def planned(row: dict[str, Any], hosts: list[dict[str, Any]] | None = None, **closed: str) -> tuple[Plan, list[str]]:
    """The plan, and the names of the hosts that took frames."""
    farm = tick.snapshot(columns(HOSTS if hosts is None else hosts))
    found = tick.layers(row, farm, closed)
    caps = Caps({}, {}, {("show", "alloc"): Share(100, NO_CAP, 0)}, {}, {})
    made = tick.plan(farm.hosts, found, caps, Settings(), 1, lambda: False, State())
    return made, sorted({farm.hosts[p.host].name for p in made.placements})


@pytest.mark.parametrize("tags", ["host07", "HOST07", "host07.studio.lan", "h o st07", "no | host07", "Host07|gone"])
def test_a_pin_resolves_short_or_full_in_any_case(tags: str) -> None:
    made, names = planned(layer_row(tags))
    assert names == ["Host07"]
    assert len(made.placements) == 4


@pytest.mark.parametrize("tags", ["host06", "host06.studio.lan", "Host06.other.lan"])
def test_a_pin_resolves_whatever_name_the_host_has_stored(tags: str) -> None:
    assert planned(layer_row(tags))[1] == ["host06.studio.lan"]


def reasons(row: dict[str, Any], **more: Any) -> tuple[str, list[str]]:
    made, names = planned(row, **more)
    assert not names
    (wait,) = made.waits.values()
    return wait.reason, [reason.reason for reason in wait.reasons]


def test_the_causes_of_no_host_have_reasons_of_their_own() -> None:
    assert reasons(layer_row("host99")) == ("no_host", ["no host", "tags"])
    assert reasons(layer_row("host99"), host99="host down") == ("no_host", ["host down"])
    assert reasons(layer_row("HOST99.lan"), host99="host locked") == ("no_host", ["host locked"])
    assert reasons(layer_row("far")) == ("no_host", ["wrong facility"])
    assert reasons(layer_row("host07", os="windows")) == ("no_host", ["wrong os"])
    assert reasons(layer_row("host07", cores_min=500))[1][0] == "host too small"
    full = [host_row("host07", int_cores_idle=0)]
    assert reasons(layer_row("host07"), hosts=full) == ("capacity", ["idle cores"])


def test_a_pin_that_is_down_beside_one_that_is_up_is_mentioned_only() -> None:
    made, names = planned(layer_row("host07 | host99"), host99="host down")
    assert names == ["Host07"]
    assert made.waits[0].reason == "flowing"


def test_a_layer_without_os_or_with_one_of_the_hosts_runs_on_its_pin() -> None:
    for os in ("", None, "rocky", "linux"):
        assert planned(layer_row("host07", os=os))[1] == ["Host07"]


def test_a_pin_never_goes_past_thread_mode_all_for_layers_without_threads() -> None:
    hosts = [host_row("host07", int_thread_mode=1)]
    assert reasons(layer_row("host07", threadable=False), hosts=hosts) == ("no_host", ["wrong thread mode"])
    assert planned(layer_row("host07"), hosts)[1] == ["host07"]


def test_other_gates_of_a_pinned_layer_hold() -> None:
    assert reasons(layer_row("host07", gates="job paused")) == ("limit", ["job paused"])
