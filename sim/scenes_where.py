"""Scenarios about where frames run: on hosts that may take them, and rather where their data is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import psycopg

from sim import script, world
from sim.inline import Booked, End, Inline
from sim.lab import Say
from sim.processes import cpu_s
from sim.verify import Bar, Numbers, Scenario, World


def pin(given: World) -> Numbers:
    """Layers tagged with a host's name run there and only there; a name that nobody bears is shown as such."""
    pinned = ("host0003", "host0007", "host0012")
    frames = 120
    with given.database(world.uniform(16, 20)) as connection:
        script.submit(connection, "flood", [script.layer("render", 3000)], priority=100)
        for name in pinned:
            tags = "general" if given.control else name
            script.submit(connection, f"on_{name}", [script.layer("render", frames, tags=tags)], priority=50)
        script.submit(connection, "nowhere", [script.layer("render", 10, tags="nosuchhost")])
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(30, 60))
        booked: Counter[str] = Counter()
        misplaced = 0
        for _ in range(given.size(400, 200)):
            for one in farm.step(30):
                if one.job.startswith(script.full_name("on_")):
                    name = one.job.removeprefix(script.full_name("on_"))
                    booked[name] += 1
                    misplaced += one.host != name
                misplaced += one.job == script.full_name("nowhere")
            if all(booked[name] >= frames for name in pinned):
                break
            given.say(f"{sum(booked.values())} of {frames * len(pinned)} pinned frames booked")
        no_host = farm.answers[-1]["waiting"]["no_host"]
    return {
        "pinned_booked": sum(booked.values()), "share_booked": sum(booked.values()) / (frames * len(pinned)),
        "misplaced": misplaced, "waiting_for_no_host": no_host,
    }  # fmt: skip


def tags_gpu(given: World) -> Numbers:
    """Sizes of hosts as tags, and GPU layers on GPU hosts; work without GPUs fills the rest to the last core."""
    scale = given.size(2, 1)
    hosts, kind_of = [], {}
    for kind, count, cores, gpus in (
        ("large", 6, 64, 0), ("medium", 10, 32, 0), ("small", 30, 16, 0), ("graphics", 8, 32, 4),
    ):  # fmt: skip
        for number in range(count * scale):
            made = world.host(f"{kind}{number:04d}", cores, cores * 4, gpus, gpus * 16)
            kind_of[made["name"]] = kind
            hosts.append(made)
    allowed = {
        "onlarge": {"large"}, "onmedium": {"medium"}, "onsmall": {"small", "medium"}, "withgpu": {"graphics"},
    }  # fmt: skip
    with given.database(hosts) as connection:
        for kind in ("large", "medium", "small", "graphics"):
            world.tag(connection, [name for name, of in kind_of.items() if of == kind], [kind])
        plain = given.control
        layers = [
            script.layer("onlarge", 2000 * scale, 4, tags="general" if plain else "large"),
            script.layer("onmedium", 2000 * scale, 2, tags="general" if plain else "medium"),
            script.layer("onsmall", 3000 * scale, 1, tags="general" if plain else "small | medium"),
            script.layer("withgpu", 200 * scale, 2, gpus=1, gpu_memory="8g"),
            *script.layers(8, 6000 * scale),
        ]
        script.submit(connection, "mixed", layers)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 300))
        misplaced, by_layer, fills = 0, Counter[str](), []
        for step in range(given.size(12, 6)):
            for one in farm.tick():
                by_layer[one.layer] += 1
                misplaced += kind_of[one.host] not in allowed.get(one.layer, {kind_of[one.host]})
            fills.append(farm.fill())
            farm.advance(60)
            given.say(f"step {step + 1}: {sum(by_layer.values()):,} bookings")
    return {
        "booked": sum(by_layer.values()), "gpu_booked": by_layer["withgpu"], "misplaced": misplaced,
        "large_booked": by_layer["onlarge"], "small_booked": by_layer["onsmall"], "fill": min(fills[1:]),
    }  # fmt: skip


def tagmax(given: World) -> Numbers:
    """As many kinds of hosts as hosts: each has a tag of its own, and a layer that asks for it."""
    count = given.size(1000, 200)
    hosts = world.uniform(16, count)
    with given.database(hosts) as connection:
        for made in hosts:
            world.tag(connection, [made["name"]], [f"own_{made['name']}"])
        layers = [
            script.layer(
                f"for_{made['name']}", 8, tags="general" if given.control else f"own_{made['name']}"
            )
            for made in hosts
        ]  # fmt: skip
        script.submit(connection, "special", layers[:500])
        script.submit(connection, "special2", layers[500:]) if layers[500:] else None
        script.submit(connection, "common", [script.layer("render", count * 16)])
        farm = Inline(connection, seconds=lambda booked: 600.0)
        booked = farm.tick()
        own = [one for one in booked if one.layer.startswith("for_")]
        spent = cpu_s(connection.info.backend_pid)
        misplaced = sum(one.layer.removeprefix("for_") != one.host for one in own)
        answer = farm.answers[-1]
        rounds = 0
        while len(own) < count * 8 and rounds < 8:
            farm.advance(600)
            own += [one for one in farm.tick() if one.layer.startswith("for_")]
            rounds += 1
    return {
        "groups": answer["groups"], "hosts": count, "booked": len(booked), "own_booked": len(own) / (count * 8),
        "misplaced": misplaced, "fill": farm.fill(), "cpu_s": spent,
    }  # fmt: skip


class Caches:
    """What hosts have in their caches, seen from outside: a layer's data until `window` others' frames came."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._booked: Counter[str] = Counter()  # host -> frames so far
        self._left: dict[tuple[str, str], int] = {}  # host, layer -> the host's frames when the layer's last one ended
        self.live = self.warm = self.cold = 0

    def start(self, booked: list[Booked], running: Collection[Booked]) -> None:
        """Count where the frames of a tick begin; `running` ran before it."""
        there = {(one.host, one.pk_layer) for one in running}
        for one in booked:
            left = self._left.get((one.host, one.pk_layer))
            if (one.host, one.pk_layer) in there:
                self.live += 1
            elif left is not None and self._booked[one.host] - left < self._window:
                self.warm += 1
            else:
                self.cold += 1
        self._booked.update(one.host for one in booked)

    def end(self, one: Booked) -> None:
        self._left[one.host, one.pk_layer] = self._booked[one.host]

    def forget_counts(self) -> None:
        self.live = self.warm = self.cold = 0


def _with_caches(connection: psycopg.Connection[Any], say: Say, steps: int, pauses: bool) -> Caches:
    """Sixty jobs on thirty hosts; with `pauses` each is away every other three minutes. The start is not counted."""
    count = 60
    caches = Caches(window=64)
    jobs = [script.submit(connection, f"job{number:02d}", [script.layer("render", 3000)]) for number in range(count)]

    def ending(one: Booked) -> End:
        caches.end(one)
        return End()

    farm = Inline(connection, seconds=lambda one: farm.random.uniform(60, 120), ending=ending)
    for step in range(steps):
        if step == steps // 3:
            caches.forget_counts()
        if pauses and step % 6 == 0:
            away = step // 6 % 2
            connection.execute("select maestro.resume_job(j) from unnest(%s::text[]) as j", [jobs[1 - away :: 2]])
            connection.execute("select maestro.pause_job(j) from unnest(%s::text[]) as j", [jobs[away::2]])
        before = list(farm.running.values())
        caches.start(farm.tick(), before)
        farm.advance(30)
        say(f"step {step + 1}: {caches.live:,} live, {caches.warm:,} warm, {caches.cold:,} cold")
    return caches


def locality(given: World) -> Numbers:
    """Many layers on few hosts: a core that comes free goes to a layer that runs there; to any in the control run."""
    with given.database(world.uniform(16, 30)) as connection:
        if given.control:
            script.set_values(connection, locality_enabled="false")
        found = _with_caches(connection, given.say, given.size(45, 21), pauses=False)
    total = found.live + found.warm + found.cold
    return {"bookings": total, "live_share": found.live / max(total, 1)}


def warmth(given: World) -> Numbers:
    """Jobs that pause and come back, with the memory of what they left and without; the control run never has it."""
    shares = {}
    for window in (0, 0 if given.control else 64):
        with given.database(world.uniform(16, 30)) as connection:
            script.set_values(connection, locality_window_frames=window)
            found = _with_caches(connection, given.say, given.size(54, 30), pauses=True)
        total = found.live + found.warm + found.cold
        shares["without" if "without" not in shares else "with"] = found.cold / max(total, 1)
    return {
        "bookings": total, "cold_share": shares["with"], "cold_share_without": shares["without"],
        "cold_of_without": shares["with"] / shares["without"] if shares["without"] else 1.0,
    }  # fmt: skip


SCENARIOS = (
    Scenario(
        "PIN", "Work pinned to a host runs there and only there; an unknown host is named.", pin,
        (Bar("misplaced", at_most=0), Bar("share_booked", at_least=1), Bar("waiting_for_no_host", at_least=10)),
        ("pinned_booked",), ("misplaced",), quick=True,
    ),
    Scenario(
        "TAGS_GPU", "Tags and GPUs are kept to, and nothing that fits is left idle for them.", tags_gpu,
        (Bar("misplaced", at_most=0), Bar("fill", at_least=0.98)),
        ("booked", "gpu_booked", "large_booked", "small_booked"), ("misplaced",), quick=True,
    ),
    Scenario(
        "TAGMAX", "A farm where every host is a kind of its own fills all the same.", tagmax,
        (
            Bar("misplaced", at_most=0), Bar("own_booked", at_least=1), Bar("fill", at_least=0.99),
            Bar("cpu_s", at_most=20),
        ),
        ("groups", "booked"), ("misplaced",), quick=True,
    ),
    Scenario(
        "LOCALITY", "Cores that come free go back to the layers that run on their host.", locality,
        (Bar("live_share", at_least=0.7),), ("bookings",), ("live_share",),
    ),
    Scenario(
        "WARMTH", "Layers that were away return to the hosts they left: at most half as many cold starts.", warmth,
        (Bar("cold_of_without", at_most=0.5),), ("bookings", "cold_share_without"), ("cold_of_without",),
    ),
)  # fmt: skip
