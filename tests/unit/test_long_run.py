"""A small farm with every feature in use, tick after tick: nothing is ever over-booked, and nothing starves."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from planner import tick
from planner.model import (
    THREAD_ALL,
    THREAD_VARIABLE,
    Busy,
    Caps,
    Host,
    Layer,
    Limit,
    Peaks,
    Plan,
    Settings,
    Share,
    State,
)
from planner.plan import plan
from planner.size import fits_empty

GIB = 1 << 20  # KiB
TICK_S = 10.0
SPECS = (  # cores, GiB, gpus, GiB of gpu memory, group
    [(16, 56, 0, 0, 0)] * 5 + [(32, 116, 0, 0, 1)] * 3 + [(16, 64, 2, 16, 2)] * 2 + [(64, 248, 0, 0, 3)] * 2
    + [(16, 56, 0, 0, 4), (16, 56, 0, 0, 5)]
)  # fmt: skip
ALLOC = {0: "farm", 1: "farm", 2: "gpus", 3: "farm", 4: "farm", 5: "farm"}
MODES = {4: THREAD_ALL, 5: THREAD_VARIABLE}
ASK = 40 * GIB  # of frames that failed for memory
SHOWS = ("big", "small", "fifo")
LIMITS = ("renderer", "node seats")
KNOBS = Settings(
    reservation_block_seconds=120, fifo_shows=frozenset({"fifo"}), layer_candidates_per_group_max=30,
    locality_window_frames=16, host_frame_dispatch_max=40, job_frame_dispatch_max=20,
)  # fmt: skip
PATIENCE = 2000  # ticks that a layer may wait for its next frame: low priorities share licences with many


class Proc(NamedTuple):
    """A running frame."""

    layer: str
    host: int
    cores: int
    mem: int
    gpus: int
    gpu_mem: int
    ends_s: float


class Farm:
    """The world around the planner: what runs, what waits, and what earlier ticks left behind."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self.procs: list[Proc] = []
        self.work: dict[str, Layer] = {}  # waiting counts what is left
        self.run_s: dict[str, float] = {}
        self.rss: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.bound: dict[str, tuple[str, ...]] = {}
        self.since: dict[str, int] = {}  # tick of the last booking, or of the arrival
        self.odometer = [0] * len(SPECS)
        self.left: dict[str, dict[str, int]] = {}  # layer -> host -> odometer when it left
        self.state = State()
        self.asking: dict[str, int] = {}  # layer -> frames that failed for memory and wait
        self.asked: dict[str, int] = {}  # layer -> tick of the last booking of such a frame, or of its failure
        self.made = 0
        self.booked = self.backfilled = self.granted = self.longest = self.finished = 0

    def arrive(self, number: int) -> None:
        """A new layer with a shape of its own."""
        random = self.random
        name = f"layer{self.made}"
        self.made += 1
        kind = random.random()
        cores, gpus, gpu_mem, groups = random.choice((100, 100, 200, 400, 50)), 0, 0, {0, 1, 2, 3, 4, 5}
        mem = random.choice((1, 2, 6, 20)) * GIB
        if kind < 0.03:
            cores, mem = 6400, 64 * GIB
        elif kind < 0.05:
            cores = random.choice((0, -100))
        elif kind < 0.15:
            groups = {2}
            gpus, gpu_mem = random.choice(((1, 0), (1, 8 * GIB), (0, 4 * GIB), (2, 0)))
        elif kind < 0.17:
            mem = 200 * GIB
        plain = 0 < cores < 1000 and not gpus and not gpu_mem and mem < 200 * GIB
        pinned = frozenset({random.randrange(len(SPECS))}) if plain and random.random() < 0.08 else None
        threadable = random.random() < 0.8 and cores != 50
        if not threadable:
            groups -= {4}
        self.work[name] = Layer(
            0, name, f"job{number % 5}", random.choice(SHOWS), "folder", random.choice((-3, 1, 20, 50, 100)),
            random.randint(1, 40 if plain else 4), cores, random.choice((0, 0, 0, 400)) if cores <= 400 else 0, mem,
            gpus, gpu_mem, threadable, frozenset() if pinned else frozenset(groups), pinned, (),
            selfish=random.random() < 0.05, job_started_s=self.now_s, dispatch_order=number,
        )  # fmt: skip
        self.run_s[name] = random.choice((5.0, 40.0, 120.0, 300.0))
        self.rss[name] = max(GIB // 4, int(mem * random.choice((0.3, 0.8, 1.0, 3.0)))) if mem < 7 * GIB else mem
        self.bound[name] = tuple(limit for limit in LIMITS if random.random() < 0.15)
        self.since[name] = number

    def hosts(self) -> list[Host]:
        """The snapshot, by the procs."""
        found = []
        for index, (cores, gib, gpus, gpu_gib, group) in enumerate(SPECS):
            total = (cores * 100, gib * GIB, gpus, gpu_gib * GIB)
            taken = [proc for proc in self.procs if proc.host == index]
            idle = (
                total[0] - sum(proc.cores for proc in taken), total[1] - sum(proc.mem for proc in taken),
                total[2] - sum(proc.gpus for proc in taken), total[3] - sum(proc.gpu_mem for proc in taken),
            )  # fmt: skip
            refused = 200 if self.random.random() < 0.01 else 0
            mode = MODES.get(group, 0)
            found.append(Host(index, f"host{index}", f"host{index}", group, ALLOC[group], mode, total, idle, refused))
        return found

    def caps(self) -> Caps:
        cores: dict[tuple[str, str], int] = {}
        holders = set()
        renderers = 0
        for proc in self.procs:
            key = (self.work[proc.layer].pk_show, ALLOC[SPECS[proc.host][4]])
            cores[key] = cores.get(key, 0) + proc.cores
            renderers += LIMITS[0] in self.bound[proc.layer]
            if LIMITS[1] in self.bound[proc.layer]:
                holders.add(f"host{proc.host}")
        sizes = {"big": 20_000, "small": 2_000, "fifo": 8_000}
        shows = {
            (show, alloc): Share(sizes[show], 30_000, cores.get((show, alloc), 0))
            for show in SHOWS
            for alloc in ("farm", "gpus")
        }
        limits = {
            LIMITS[0]: Limit(LIMITS[0], False, 12, -1, renderers),
            LIMITS[1]: Limit(LIMITS[1], True, 4, -1, len(holders), frozenset(holders)),
        }
        return Caps({"job0": (20_000, 4)}, {"folder": (60_000, 9)}, shows, limits, self.bound)

    def known(self, layers: list[Layer]) -> State:
        live: dict[str, dict[str, int]] = {}
        ready: dict[str, list[Busy]] = {}
        for proc in self.procs:
            on = live.setdefault(proc.layer, {})
            on[f"host{proc.host}"] = on.get(f"host{proc.host}", 0) + 1
            end_s = proc.ends_s if self.done.get(proc.layer) else float("inf")
            ready.setdefault(f"host{proc.host}", []).append(Busy(end_s, proc.cores, proc.mem, proc.gpus, proc.gpu_mem))
        warm = {
            name: {host: self.odometer[int(host[4:])] - at for host, at in places.items()}
            for name, places in self.left.items()
        }
        known = self.state._replace(
            now_s=self.now_s, elapsed_ms=int(TICK_S * 1000), live=live, warm=warm,
            run_seconds={name: self.run_s[name] for name in self.work if self.done.get(name)},
            peaks={name: Peaks(self.rss[name], self.done[name]) for name in self.work if self.done.get(name)},
            completed={layer.pk_layer: self.done.get(layer.pk_layer, 0) for layer in layers},
            short_mem=frozenset({"host1"}) if self.random.random() < 0.02 else frozenset(),
        )  # fmt: skip
        wanted = tick.ready_wanted(known, KNOBS)
        names = [f"host{n}" for n in range(len(SPECS))] if wanted is None else wanted
        return known._replace(ready={name: tuple(ready.get(name, ())) for name in names})

    def end_frames(self, number: int) -> None:
        for proc in [proc for proc in self.procs if proc.ends_s <= self.now_s]:
            self.procs.remove(proc)
            layer = self.work[proc.layer]
            if self.random.random() < 0.01 and layer.mem_min < ASK and layer.pinned is None and layer.gpus_min == 0:
                self.work[proc.layer] = layer._replace(waiting=layer.waiting + 1)
                self.asking[proc.layer] = self.asking.get(proc.layer, 0) + 1
                self.asked.setdefault(proc.layer, number)
                continue
            self.done[proc.layer] = self.done.get(proc.layer, 0) + 1
            if not any(one.layer == proc.layer and one.host == proc.host for one in self.procs):
                self.left.setdefault(proc.layer, {})[f"host{proc.host}"] = self.odometer[proc.host]
            if not self.work[proc.layer].waiting and not any(one.layer == proc.layer for one in self.procs):
                self.finished += 1
                for memory in (self.work, self.left, self.since, self.done, self.bound, self.asking, self.asked):
                    memory.pop(proc.layer, None)  # type: ignore[attr-defined]

    def meddle(self) -> None:
        """Operators pause, resume and re-prioritise now and then."""
        name = self.random.choice(list(self.work))
        layer = self.work[name]
        if layer.gates:
            self.work[name] = layer._replace(gates=())
        elif self.random.random() < 0.5:
            self.work[name] = layer._replace(priority=self.random.choice((1, 20, 100)))
        else:
            self.work[name] = layer._replace(gates=("job paused",))

    def step(self, number: int) -> None:
        """One tick, its bookings and what must hold after it."""
        self.now_s += TICK_S
        self.end_frames(number)
        while sum(1 for layer in self.work.values() if layer.waiting) < 24:
            self.arrive(number)
        if self.random.random() < 0.05:
            self.meddle()
        running: dict[str, int] = {}
        for proc in self.procs:
            running[proc.layer] = running.get(proc.layer, 0) + 1
        layers = []
        for layer in self.work.values():
            asking = self.asking.get(layer.pk_layer, 0)
            for part in (
                layer._replace(waiting=layer.waiting - asking), layer._replace(waiting=asking, mem_min=ASK, ask=ASK)
            ):  # fmt: skip
                if part.waiting:
                    layers.append(part._replace(order=len(layers), running=running.get(layer.pk_layer, 0)))
        hosts, caps, known = self.hosts(), self.caps(), self.known(layers)
        made = plan(hosts, layers, caps, KNOBS, number, lambda: False, known)
        self.check(made, hosts, layers, caps)
        self.book(made, layers, number)
        self.check_patience(layers, hosts, number)

    def book(self, made: Plan, layers: list[Layer], number: int) -> None:
        for placement in made.placements:
            name = layers[placement.layer].pk_layer
            self.procs.append(
                Proc(name, placement.host, *placement.ask, self.now_s + self.run_s[name] * self.random.uniform(0.5, 1))
            )
            self.odometer[placement.host] += 1
            self.work[name] = self.work[name]._replace(waiting=self.work[name].waiting - 1)
            self.since[name] = number
            if layers[placement.layer].ask:
                self.asking[name] -= 1
                self.asked[name] = number
                assert placement.ask.mem >= ASK
        for one in made.grants:
            assert one.pk_host not in {held.pk_host for held in self.state.reservations} - set(made.releases)
        kept = tuple(held for held in self.state.reservations if held.pk_host not in made.releases)
        self.state = self.state._replace(reservations=kept + made.grants, debts=made.debts)
        self.booked += len(made.placements)
        self.backfilled += sum(placement.backfill for placement in made.placements)
        self.granted += len(made.grants)

    def check(self, made: Plan, hosts: list[Host], layers: list[Layer], caps: Caps) -> None:
        """No total and no cap is passed, and who waits is told why."""
        for host in hosts:
            assert min(host.idle_cores, host.idle_mem, host.idle_gpus, host.idle_gpu_mem) >= 0
        cores: dict[object, int] = {}
        frames = 0
        machines = set(caps.limits[LIMITS[1]].holders)
        placed = [0] * len(layers)
        for placement in made.placements:
            layer, host = layers[placement.layer], hosts[placement.host]
            for owner in (layer.pk_job, layer.pk_folder, (layer.pk_show, host.pk_alloc)):
                cores[owner] = cores.get(owner, 0) + placement.ask.cores
            frames += LIMITS[0] in self.bound[layer.pk_layer]
            if LIMITS[1] in self.bound[layer.pk_layer]:
                machines.add(host.pk_host)
            placed[placement.layer] += 1
        assert cores.get("job0", 0) <= 20_000
        assert cores.get("folder", 0) <= 60_000
        for key, share in caps.shows.items():
            assert cores.get(key, 0) <= max(0, share.burst - share.cores)
        assert frames <= max(0, 12 - caps.limits[LIMITS[0]].used)
        assert len(machines) <= max(4, caps.limits[LIMITS[1]].used)
        for order, layer in enumerate(layers):
            assert placed[order] <= layer.waiting
            assert (order in made.waits) == (placed[order] < layer.waiting)

    def check_patience(self, layers: list[Layer], hosts: list[Host], number: int) -> None:
        for layer in layers:
            name = layer.pk_layer
            if layer.gates:
                self.since[name] = number
                self.asked.pop(name, None)
                continue
            able = any(
                fits_empty(layer, host) and (host.group in layer.groups or host.index in (layer.pinned or ()))
                for host in hosts
            )
            if able:
                waited = number - (self.asked.setdefault(name, number) if layer.ask else self.since[name])
                self.longest = max(self.longest, waited)
                assert waited <= PATIENCE, f"{layer} starves"


def run(seed: int, ticks: int) -> Farm:
    farm = Farm(seed)
    for number in range(ticks):
        farm.step(number)
    return farm


def test_500_ticks_of_everything_keep_every_rule_and_starve_nothing() -> None:
    farm = run(1, 500)
    assert farm.booked > 500
    assert farm.granted


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_10000_ticks_of_everything_keep_every_rule_and_starve_nothing(seed: int) -> None:
    farm = run(seed, 10_000)
    assert farm.booked > 10_000
    assert farm.granted
