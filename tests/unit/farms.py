"""Generated farms for the planner's properties: small, crowded, and full of corners.

A farm is made from a seed by plain random numbers: thousands a second, and a failing one is named by its seed and size.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from planner.model import Busy, Caps, Host, Layer, Limit, Peaks, Reservation, Settings, Share, State

GIB = 1 << 20  # KiB
CLASSES = [(400, 8 * GIB, 0, 0), (800, 16 * GIB, 0, 0), (1600, 24 * GIB, 2, 8 * GIB), (250, 3 * GIB, 0, 0)]

HostSpec = tuple[int, str, int, tuple[int, int, int, int], tuple[int, int, int, int], int]


class Farm(NamedTuple):
    """Input of one plan. `hosts()` builds fresh hosts each time, since planning uses them up."""

    host_specs: list[HostSpec]
    layers: list[Layer]
    caps: Caps
    settings: Settings
    seed: int
    state: State = State()

    def hosts(self) -> list[Host]:
        return [
            Host(index, f"host{index}", f"host{index}", group, alloc, mode, total, idle, refused)
            for index, (group, alloc, mode, total, idle, refused) in enumerate(self.host_specs)
        ]


def some(random: Random, values: list[str], most: int) -> list[str]:
    return random.sample(values, random.randint(0, min(most, len(values))))


def make_hosts(random: Random, count: int) -> list[HostSpec]:
    found: list[HostSpec] = []
    for _ in range(count):
        cores, mem, gpus, gpu_mem = total = random.choice(CLASSES)
        group = random.randint(0, 2)
        idle = total
        if random.random() < 0.4:
            idle = (
                random.randint(0, cores // 50) * 50,
                random.randint(0, mem * 2 // GIB) * GIB // 2,
                random.randint(0, gpus),
                random.randint(0, gpu_mem // GIB) * GIB,
            )
        found.append((group, f"alloc{group % 2}", random.choice((0, 0, 0, 1, 2)), total, idle,
                      random.choice((0,) * 6 + (100, 300))))  # fmt: skip
    return found


def make_layers(random: Random, count: int, hosts: int) -> list[Layer]:
    found = []
    for order in range(count):
        gpus, gpu_mem = random.choice(((0, 0),) * 5 + ((1, 0), (1, GIB), (0, GIB)))
        pins = frozenset(random.sample(range(hosts), min(hosts, random.choice((0, 0, 0, 1, 2)))))
        found.append(
            Layer(
                order,
                f"layer{order}",
                f"job{random.randint(0, 2)}",
                f"show{random.randint(0, 1)}",
                f"folder{random.randint(0, 1)}",
                random.choice((-5, 0, 1, 10, 100, 1000)),
                random.choice((1, 3, 10, 30)),
                random.choice((50, 100, 100, 200, 400, 800, 0, -100)),
                random.choice((0, 0, 200)),
                random.choice((1, 2, 3, 6, 12, 40)) * GIB // 4,
                gpus,
                gpu_mem,
                random.random() < 0.6,
                frozenset(random.sample(range(3), random.choice((0, 1, 2, 3, 3)))),
                pins or None,
                random.choice(((), (), (), (), ("job paused",))),
                running=random.randint(0, 9),
                selfish=random.random() < 0.1,
                job_started_s=float(random.randint(0, 2)),
                dispatch_order=random.randint(0, 2),
            )
        )
    return found


def make_caps(random: Random, layers: list[Layer], hosts: int) -> Caps:
    roomy = random.choice((1, 100))
    bound = {layer.pk_layer: tuple(some(random, ["licence", "seats", "nodes"], 2)) for layer in layers}
    for layer in layers:
        if random.random() < 0.6:
            del bound[layer.pk_layer]
    limits = {"licence": Limit("licence", False, random.randint(0, 20), -1, random.randint(0, 3))}
    for name in ("seats", "nodes"):
        held = frozenset(some(random, [f"host{index}" for index in range(hosts)], 2))
        limits[name] = Limit(name, True, random.randint(0, 5), random.choice((-1, -1, 1)), len(held), held)
    return Caps(
        {f"job{n}": (random.randint(2, 30) * 100 * roomy, random.randint(0, 3)) for n in range(3)},
        {"folder0": (random.randint(2, 40) * 100 * roomy, random.randint(0, 3))},
        {
            (f"show{show}", f"alloc{alloc}"): Share(
                random.randint(0, 30) * 100, random.randint(5, 50) * 100 * roomy, random.randint(0, 10) * 100
            )
            for show in range(2)
            for alloc in range(2)
            if random.random() < 0.85
        },
        limits,
        bound,
    )


def make_state(random: Random, layers: list[Layer], hosts: int) -> State:
    """What earlier ticks left: anything, consistent or not."""
    machines = [f"host{index}" for index in range(hosts)]
    held = []
    for name in some(random, machines, 3):
        owner = random.choice([layer for layer in layers if not layer.gates] or layers)
        priority = owner.priority if random.random() < 0.8 else 7
        held.append(Reservation(name, owner.pk_layer, priority, owner.cores_min, 0.0))
    known = [layer.pk_layer for layer in layers if random.random() < 0.6]

    def proc() -> Busy:
        end_s = random.choice((500.0, 1100.0, 2000.0, 2000.0, 2000.0, float("inf")))
        return Busy(end_s, 100, random.randint(1, 16) * GIB, 0, 0)

    return State(
        now_s=1000.0,
        elapsed_ms=1000,
        live={name: {host: random.randint(1, 9) for host in some(random, machines, 3)} for name in known},
        warm={name: {host: random.randint(0, 80) for host in some(random, machines, 3)} for name in known},
        reservations=tuple(held),
        debts={name: random.randint(0, 400_000) for name in known},
        run_seconds={name: float(random.choice((50, 200, 5000))) for name in known},
        ready={one.pk_host: tuple(proc() for _ in range(random.randint(0, 3))) for one in held},
        peaks={
            name: Peaks(random.randint(1, 12) * GIB // 2, random.randint(0, 6))
            for name in known
            if random.random() < 0.5
        },
        completed={layer.pk_layer: random.randint(0, 9) for layer in layers if random.random() < 0.3},
        short_mem=frozenset(some(random, machines, 1)) if random.random() < 0.3 else frozenset(),
    )


def make_farm(seed: int, hosts: int, layers: int) -> Farm:
    """Few classes of hosts and of frames, so that ties, full hosts and shared caps are the rule."""
    random = Random(seed)
    found = make_layers(random, layers, hosts)
    settings = Settings(
        weight_cores=random.choice((1.0, 1.0, 0.0)),
        weight_mem=random.choice((1.0, 1.0, 3.0)),
        weight_gpus=random.choice((4.0, 0.0)),
        locality_window_frames=random.choice((64, 64, 16, 0)),
        memory_sizing=random.choice((True, True, True, False)),
        layer_candidates_per_group_max=random.choice((2000, 2000, 2000, 3, 1)),
        job_frame_dispatch_max=random.choice((0, 0, 0, 2)),
        host_frame_dispatch_max=random.choice((0, 0, 0, 3)),
        locality_enabled=random.choice((True, True, False)),
        locality_bonus=random.choice((8.0, 0.25)),
        host_limit_seat_bonus=random.choice((16.0, 0.0)),
        layer_host_max_frac=random.choice((0.25, 0.25, 0.0)),
        fair_share=random.choice((True, True, False)),
        fifo=random.random() < 0.2,
        fifo_shows=frozenset(random.choice(((), (), ("show0",)))),
        backfill_enabled=random.choice((True, True, False)),
        reservations_enabled=random.choice((True, True, True, False)),
        mem_per_core=random.choice((0, 0, 4 * GIB)),
    )
    return Farm(
        make_hosts(random, hosts),
        found,
        make_caps(random, found, hosts),
        settings,
        random.getrandbits(32),
        make_state(random, found, hosts) if random.random() < 0.8 else State(),
    )


def farms(max_hosts: int = 8, max_layers: int = 6) -> st.SearchStrategy[Farm]:
    return st.builds(make_farm, st.integers(0, 2**48), st.integers(1, max_hosts), st.integers(1, max_layers))
