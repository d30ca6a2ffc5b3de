"""Gpu hosts: gpus are not buried under frames that do not need them."""

from __future__ import annotations

import pytest

from planner.model import Settings
from tests.unit.build import by_host, by_layer, host, layer, run, why


@pytest.mark.parametrize(("gpus", "gpu_gib"), [(1, 0), (0, 1), (1, 1), (0, 0)])
def test_gpus_and_gpu_memory_may_each_be_asked_alone(gpus: int, gpu_gib: int) -> None:
    made = run([host(0, gpus=2, gpu_gib=8)], [layer(0, gpus=gpus, gpu_gib=gpu_gib)])
    (placement,) = made.placements
    assert (placement.ask.gpus, placement.ask.gpu_mem >> 20) == (gpus, gpu_gib)


def test_each_idle_gpu_keeps_what_one_waiting_gpu_frame_needs() -> None:
    """Eight cores, two gpus, a gpu frame of two cores and 8 GiB: cpu frames get four cores, whoever draws first."""
    for seed in range(20):
        hosts = [host(0, cores=8, gib=64, gpus=2)]
        layers = [layer(0, waiting=99, priority=500), layer(1, cores=2, gib=8, waiting=9, gpus=1, priority=1)]
        assert by_layer(run(hosts, layers, seed=seed)) == {0: 4, 1: 2}


def test_a_gpu_host_too_full_for_the_waiting_frame_gathers_what_it_needs() -> None:
    hosts = [host(0, cores=8, gpus=1, idle=3)]
    made = run(hosts, [layer(0, waiting=9), layer(1, cores=4, gpus=1)])
    assert not made.placements
    assert made.waits[0].reason == "held"
    assert why(made, 0)["kept for gpu frames"] == 1
    assert made.waits[1].reason == "capacity"


def test_with_no_gpu_work_waiting_cpu_frames_fill_gpu_hosts() -> None:
    assert by_host(run([host(0, cores=8, gpus=2)], [layer(0, waiting=99)])) == {0: 8}
    gated = layer(1, gpus=1, gates=("job paused",))
    assert by_host(run([host(0, cores=8, gpus=2)], [layer(0, waiting=99), gated])) == {0: 8}


def test_no_more_is_kept_than_waiting_gpu_frames_need() -> None:
    hosts = [host(n, cores=8, gpus=4) for n in range(3)]
    made = run(hosts, [layer(0, waiting=99), layer(1, cores=2, waiting=1, gpus=1)])
    assert by_layer(made) == {0: 22, 1: 1}


def test_cpu_layers_fill_cpu_hosts_while_a_gpu_layer_waits() -> None:
    hosts = [host(0, cores=8, gpus=1, idle=0), host(1, cores=8, group=1), host(2, cores=8, group=1)]
    layers = [layer(0, gpus=1, priority=1000), layer(1, waiting=99, groups=frozenset({0, 1}))]
    made = run(hosts, layers)
    assert by_host(made, 1) == {1: 8, 2: 8}


def test_pinned_and_whole_host_gpu_frames_keep_theirs_too() -> None:
    hosts = [host(0, cores=8, gpus=1), host(1, cores=8, gpus=1)]
    layers = [layer(0, waiting=99), layer(1, cores=0, gpus=1, groups=frozenset(), pinned=frozenset({1}))]
    for seed in range(10):
        made = run([host(h.index, cores=8, gpus=1) for h in hosts], layers, seed=seed)
        assert by_host(made) == {0: 8, 1: 1}


def test_where_nothing_is_to_be_kept_the_first_to_come_takes_the_cores() -> None:
    hosts = [host(0, cores=8, gib=64, gpus=2, idle=1)]
    layers = [layer(0, waiting=99), layer(1, cores=2, gib=8, waiting=9, gpus=1)]
    assert by_layer(run(hosts, layers, knobs=Settings(gpu_hold_enabled=False))) == {0: 1}
