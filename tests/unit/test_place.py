"""Placement: agreement with brute force, and what must hold for any farm."""

from __future__ import annotations

from collections import Counter

from hypothesis import Phase, given, settings

from planner.model import Host, Plan, Share
from planner.plan import plan
from planner.wait import BUCKETS
from tests.unit.farms import Farm, farms
from tests.unit.oracle import Oracle, eligible, fits, oracle

# A farm is drawn from a seed: there is nothing to shrink.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
MANY = settings(max_examples=1000, deadline=None, phases=PHASES)
SOME = settings(max_examples=300, deadline=None, phases=PHASES)


def never() -> bool:
    return False


def planned(farm: Farm, hosts: list[Host] | None = None) -> Plan:
    hosts = farm.hosts() if hosts is None else hosts
    return plan(hosts, farm.layers, farm.caps, farm.settings, farm.seed, never, farm.state)


@MANY
@given(farms())
def test_placements_agree_with_brute_force_one_by_one(farm: Farm) -> None:
    by_force = oracle(farm.hosts(), farm.layers, farm.caps, farm.settings, farm.seed, farm.state)
    assert planned(farm).placements == by_force


@SOME
@given(farms(max_hosts=25, max_layers=12))
def test_no_host_is_over_its_total_and_no_cap_is_passed(farm: Farm) -> None:
    hosts = farm.hosts()
    made = planned(farm, hosts)
    for host in hosts:
        assert min(host.idle_cores, host.idle_mem, host.idle_gpus, host.idle_gpu_mem) >= 0
    cores: Counter[object] = Counter()
    gpus: Counter[str] = Counter()
    frames: Counter[str] = Counter()
    holders = {name: set(limit.holders) for name, limit in farm.caps.limits.items()}
    for placement in made.placements:
        layer, host = farm.layers[placement.layer], hosts[placement.host]
        for owner in (layer.pk_job, layer.pk_folder, (layer.pk_show, host.pk_alloc)):
            cores[owner] += placement.ask.cores
        gpus[layer.pk_job] += placement.ask.gpus
        gpus[layer.pk_folder] += placement.ask.gpus
        for limit in farm.caps.layer_limits.get(layer.pk_layer, ()):
            frames[limit] += 1
            holders[limit].add(host.pk_host)
    for owner, (core_cap, gpu_cap) in {**farm.caps.jobs, **farm.caps.folders}.items():
        assert cores[owner] <= core_cap
        assert gpus[owner] <= gpu_cap
    for pair in ((f"show{show}", f"alloc{alloc}") for show in range(2) for alloc in range(2)):
        share = farm.caps.shows.get(pair, Share(0, 0, 0))
        assert cores[pair] <= max(0, share.burst - share.cores)
    for name, limit in farm.caps.limits.items():
        most = limit.soft_value if limit.per_host and limit.soft_value >= 0 else limit.max_value
        taken = len(holders[name] - limit.holders) if limit.per_host else frames[name]
        assert taken <= max(0, most - limit.used)


@SOME
@given(farms(max_hosts=25, max_layers=12))
def test_only_eligible_pairs_and_no_more_frames_than_wait(farm: Farm) -> None:
    hosts = farm.hosts()
    placed: Counter[int] = Counter()
    for placement in planned(farm, hosts).placements:
        layer = farm.layers[placement.layer]
        assert eligible(layer, hosts[placement.host])
        assert hosts[placement.host].pk_host not in farm.state.short_mem
        assert not layer.gates
        placed[placement.layer] += 1
    for layer in farm.layers:
        assert placed[layer.order] <= layer.waiting


@SOME
@given(farms(max_hosts=25, max_layers=12))
def test_a_frame_stays_waiting_only_if_no_host_takes_it(farm: Farm) -> None:
    # A seat that is taken late opens its host to layers that had given up; the share of a host is a cap of its own.
    plain = {"layer_candidates_per_group_max": 2000, "job_frame_dispatch_max": 0, "layer_host_max_frac": 0.0}
    limits = {"licence": farm.caps.limits["licence"]}
    farm = farm._replace(settings=farm.settings._replace(**plain), caps=farm.caps._replace(limits=limits))
    hosts = farm.hosts()
    made = planned(farm, hosts)
    after = Oracle(farm.hosts(), farm.layers, farm.caps, farm.settings, farm.seed, farm.state)
    for layer in farm.layers:
        if layer.order in made.waits and not layer.gates and after.left[layer.order]:
            for host in after.hosts:
                part = after.sizes.on(layer.order, host)
                full = 0 < farm.settings.host_frame_dispatch_max <= host.frames
                shut = host.pk_host in farm.state.short_mem
                assert part is None or full or shut or not after.holds.admits(part, host) or (
                    fits(part, host, after.ledger) is None
                )


@SOME
@given(farms(max_hosts=25, max_layers=12))
def test_same_input_and_seed_give_the_same_plan(farm: Farm) -> None:
    assert planned(farm) == planned(farm)


@SOME
@given(farms(max_hosts=25, max_layers=12))
def test_every_layer_with_frames_left_has_one_bucket_and_a_reason(farm: Farm) -> None:
    hosts = farm.hosts()
    made = planned(farm, hosts)
    placed = Counter(placement.layer for placement in made.placements)
    left = {layer.order for layer in farm.layers if placed[layer.order] < layer.waiting}
    assert set(made.waits) == left
    for wait in made.waits.values():
        assert wait.reason in BUCKETS
        assert wait.reasons
        assert all(0 <= reason.hosts <= len(hosts) for reason in wait.reasons)
        assert len({reason.reason for reason in wait.reasons}) == len(wait.reasons)
