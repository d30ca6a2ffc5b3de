"""What work a simulated farm is given: jobs drawn from the workload of a real farm, and how they are fed."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

from sim import script
from sim.farm import FRAME_CLASSES, FrameClass

PRIORITIES = (1, 10, 50, 100, 200)
LICENCE = "sim_seats"
LICENSED_SHARE = 0.2  # of layers, where there are licences
TAGGED_SHARE = 0.5  # of layers, where hosts have zones
WIDE_CORES = 64


class Mode(enum.Enum):
    SUSTAINED = "sustained"  # more waits than fits the farm, for as long as the run lasts
    FIXED = "fixed"  # one set of jobs; the run ends when they are done
    TREES = "trees"  # as sustained, of jobs whose layers and jobs wait for one another


@dataclass(frozen=True)
class Mix:
    """Which work. Shares are 0 to 1 of all layers."""

    mode: Mode = Mode.SUSTAINED
    zones: int = 0  # tags zone0 … of hosts and layers
    gpu: float = 0.0  # share of layers that need a gpu
    mem_heavy_gib: float = 0.0  # above 0: every frame is one core with so much memory
    shows: int = 1
    licences: int = 0  # seats of the licence that some layers need; 0: none
    strand: bool = False  # wide frames among the others, which narrow ones keep from ever fitting
    widest_cores: int = 1 << 30  # layers that no host could hold are not made
    most_memory_gib: float = 1 << 30


class Feed:
    """Makes jobs. Seeded: the same seed makes the same jobs in the same order."""

    def __init__(self, connection: psycopg.Connection[Any], mix: Mix, seed: int) -> None:
        self.connection = connection
        self._mix = mix
        self._random = Random(seed)
        self._made = 0
        self._classes = [
            kind for kind in FRAME_CLASSES
            if kind.cores <= mix.widest_cores and kind.memory_gb * 4 <= mix.most_memory_gib
        ]  # fmt: skip
        self.shows = [script.SHOW, *(f"show{number:02d}" for number in range(2, mix.shows + 1))]
        self.wide_jobs = 0

    def prepare(self, cores: int) -> None:
        """Shows with equal shares of the farm's cores, and the licence's limit."""
        for name in self.shows[1:]:
            script.make_show(self.connection, name, max(cores // len(self.shows), 1), cores)
        if self._mix.licences:
            script.make_limit(self.connection, LICENCE, self._mix.licences)

    def top_up(self, least: int) -> int:
        """Submit jobs until `least` frames wait; returns the frames submitted."""
        found = script.states(self.connection)
        waiting, made = found["WAITING"] + found["DEPEND"], 0
        while waiting + made < least:
            made += self.submit()
        return made

    def submit(self) -> int:
        """One job, or one tree of two; returns its frames."""
        self._made += 1
        random, mix = self._random, self._mix
        name = f"job{self._made:06d}"
        show = self.shows[self._made % len(self.shows)]
        priority = random.choice(PRIORITIES)
        if mix.mode is Mode.TREES:
            return self._tree(name, show, priority)
        layers = [self._layer(f"layer{number}", random.randint(10, 80)) for number in range(random.randint(1, 4))]
        if mix.strand and self._made % 10 == 0:
            wide = min(WIDE_CORES, mix.widest_cores)
            layers = [script.layer("wide", 8, wide, 8192)]
            self.wide_jobs += 1
            priority = random.choice((100, 200))
        script.submit(self.connection, name, layers, priority=priority, show=show)
        return sum(int(layer["range"].split("-")[1]) for layer in layers)

    def _tree(self, name: str, show: str, priority: int) -> int:
        """A simulation, frames that each wait for their own, a comp that waits for all, and a job after it."""
        frames = self._random.randint(10, 60)
        script.submit(
            self.connection, name,
            [self._layer("sims", frames), self._layer("render", frames), self._layer("comp", 1)],
            priority=priority, show=show, depends=[
                {"type": "FRAME_BY_FRAME", "deplayer": "render", "onlayer": "sims"},
                {"type": "LAYER_ON_LAYER", "deplayer": "comp", "onlayer": "render"},
            ],
        )  # fmt: skip
        script.submit(
            self.connection, f"{name}_after", [self._layer("final", 4)], priority=priority, show=show,
            depends=[{"type": "JOB_ON_JOB", "onjob": name}],
        )  # fmt: skip
        return 2 * frames + 5

    def _layer(self, name: str, frames: int) -> dict[str, Any]:
        random, mix = self._random, self._mix
        if mix.mem_heavy_gib:
            return script.layer(name, frames, 1, int(mix.mem_heavy_gib * 1024), threadable=True)
        kind: FrameClass = random.choices(self._classes, [each.percent for each in self._classes])[0]
        # sigma 0.5: heavy-tailed; the shift keeps the mean.
        memory = max(int(kind.memory_gb * 1024 * random.lognormvariate(-0.125, 0.5)), 256)
        more: dict[str, Any] = {"threadable": True}
        cores = kind.cores
        if random.random() < mix.gpu:
            cores, memory = min(cores, 2), min(memory, 8192)
            more |= {"gpus": 1, "gpu_memory": "8g"}
        elif mix.licences and random.random() < LICENSED_SHARE:
            more |= {"limits": [LICENCE]}
        if mix.zones and random.random() < TAGGED_SHARE:
            more |= {"tags": f"zone{random.randrange(mix.zones):03d}"}
        return script.layer(name, frames, cores, memory, **more)
