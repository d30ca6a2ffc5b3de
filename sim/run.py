"""A simulated farm at work: real ticks, real launcher, fake hosts, a feed of jobs; watched, and told in a report."""

from __future__ import annotations

import contextlib
import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from db import cluster
from db.connection import connect
from db.errors import MaestroError
from sim import lifecycle, report, script, world
from sim.farm import HOST_CLASSES
from sim.feed import Feed, Mix, Mode
from sim.lab import EMPTY, Lab, Say
from sim.processes import Stage, stage

DATABASE = "sim_run"
BACKLOG = 1.5  # frames that wait, of those that would fill the farm
MEAN_CORES = 3.2  # of a frame
GPU_HOSTS = 0.1  # share of the hosts that have gpus, where there is work for them
GPUS = 4
GPU_MEMORY_GIB = 48
SAMPLE_S = 0.5
FEED_S = 0.5  # between two looks at the backlog


@dataclass(frozen=True)
class Options:
    """What to simulate. Durations in seconds."""

    mix: Mix = field(default_factory=Mix)
    hosts: int = sum(kind.count for kind in HOST_CLASSES)
    jobs: int = 50  # of the fixed feed
    compress: float = 10.0
    duration: float = 60.0
    every_ms: int = 500
    seed: int = 1
    oom: float = 0.0
    fail: float = 0.0
    picture: Path | None = None  # where a picture of the farm's use goes, SVG


@dataclass
class Sample:
    """The farm at one moment; rates are of the second before it."""

    at: float  # seconds since ticks began
    booked: float  # share of all cores that procs hold
    busy: float  # share of all cores that frames run on
    running: int
    waiting: dict[str, int]
    tick_ms: float
    launches_per_s: float
    done_per_s: float
    launch_queue: int
    completion_queue: int


Watch = Callable[[Sample, dict[str, int]], None]


def farm_of(options: Options) -> list[world.Host]:
    """As many hosts as asked for, of the real farm's classes; some with gpus, all with a zone if there are zones."""
    whole = sum(kind.count for kind in HOST_CLASSES)
    hosts: list[world.Host] = []
    for kind in HOST_CLASSES:
        for number in range(1, max(1, round(kind.count * options.hosts / whole)) + 1):
            hosts.append(world.host(f"{kind.name}{number:05d}", kind.cores, kind.nominal_gb - kind.reserved_gb))
    hosts = hosts[-options.hosts :]
    if options.mix.gpu:
        for made in hosts[:: max(round(1 / GPU_HOSTS), 1)]:
            made |= {"gpus": GPUS, "gpu_mem": GPU_MEMORY_GIB * 1024 * 1024}
    return hosts


def run(lab: Lab, options: Options, say: Say, watch: Watch) -> dict[str, Any]:
    """Simulate; returns the summary, with the path of the report."""
    hosts = farm_of(options)
    cores = sum(made["cores"] for made in hosts) // 100
    mix = Mix(**{
        **vars(options.mix), "widest_cores": max(made["cores"] for made in hosts) // 100,
        "most_memory_gib": max(made["mem"] for made in hosts) / 1024 / 1024,
    })  # fmt: skip
    dsn = lab.clone(EMPTY, DATABASE)
    samples: list[Sample] = []
    with connect(dsn) as connection, stage(dsn, lab.directory) as around:
        say(f"switching on {len(hosts)} hosts, {cores:,} cores")
        world.boot(connection, hosts)
        for zone in range(mix.zones):
            world.tag(connection, [made["name"] for made in hosts[zone :: mix.zones]], [f"zone{zone:03d}"])
        feed = Feed(connection, mix, options.seed)
        feed.prepare(cores)
        least = int(cores / MEAN_CORES * BACKLOG)
        if mix.mode is Mode.FIXED:
            for _ in range(options.jobs):
                feed.submit()
        else:
            # The farm itself fills from the backlog as well.
            say("submitting jobs")
            feed.top_up(least + int(cores / MEAN_CORES))
        around.start_launcher()
        around.start_farm(
            world.save(hosts, lab.directory / "hosts.json"),
            {"compress": options.compress, "seed": options.seed, "oom": options.oom, "fail": options.fail},
        )
        world.dial(connection, hosts, [around.farm.target])
        around.await_launchers(connection)
        around.start_ticks(options.every_ms / 1000)
        began = time.time()
        try:
            with _feeding(dsn, feed, least if mix.mode is not Mode.FIXED else 0):
                _watch(around, connection, options, cores, samples, watch)
        except KeyboardInterrupt:
            say("interrupted: ending the run")
        say("letting what runs end")
        found = script.states(connection)
        faults = lifecycle.settle(around, connection)
        totals = around.farm.stats()
        shows = dict(
            connection.execute(
                "select s.str_name, sum(js.int_succeeded_count)::bigint from public.job_stat as js"
                " join public.job as j using (pk_job) join public.show as s using (pk_show) group by 1 order by 1"
            ).fetchall()
        )
        wide = script.one(
            connection,
            "select coalesce(sum(ls.int_succeeded_count), 0)::bigint from public.layer_stat as ls"
            " join public.layer as l using (pk_layer) where l.str_name = 'wide'",
        )
    if not samples:
        raise MaestroError("the run ended before anything was measured")
    summary = _summary(options, around, began, samples, found, totals, faults, cores, len(hosts))
    if len(shows) > 1:
        summary |= {f"done_{name}": done for name, done in shows.items()}
    if mix.strand:
        summary |= {"wide_jobs": feed.wide_jobs, "wide_frames_done": wide}
    summary["report"] = str(_write(options, summary, samples))
    return summary


@contextlib.contextmanager
def _feeding(dsn: str, feed: Feed, least: int) -> Iterator[None]:
    """Keep `least` frames waiting (0: feed nothing), at its own pace: submitting must not hold up the watching."""
    over = threading.Event()
    trouble: list[Exception] = []

    def run() -> None:
        try:
            with connect(dsn) as connection:
                feed.connection = connection
                while not over.wait(FEED_S):
                    feed.top_up(least)
        except (psycopg.Error, MaestroError) as error:
            trouble.append(error)

    thread = threading.Thread(target=run, name="feed", daemon=True)
    if least:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if least:
            thread.join()
    if trouble:
        raise MaestroError(f"the feed ended: {trouble[0]}")


def _watch(
    around: Stage, connection: psycopg.Connection[Any], options: Options, cores: int, samples: list[Sample],
    watch: Watch,
) -> None:  # fmt: skip
    """Sample until the time is over, or a fixed set is done."""
    before: dict[str, Any] | None = None
    began = time.monotonic()
    done_before, at_before = 0, began
    while True:
        around.launchers[0].check()
        found = script.states(connection)
        stats = around.farm.stats()
        now = time.monotonic()
        queues = connection.execute(
            "select (select count(*) from maestro.launch where state <> 'refused'),"
            " (select count(*) from maestro.completion),"
            " (select coalesce(sum(int_cores_reserved), 0) / 100.0 from public.proc)"
        ).fetchone()
        assert queues is not None
        tick = next((answer for answer in reversed(around.ticks.answers) if answer["status"] == "planned"), None)
        if before is not None:
            took = now - at_before
            samples.append(
                Sample(
                    now - began, float(queues[2]) / cores,
                    (stats["core_seconds"] - before["core_seconds"]) / took / cores, stats["running"],
                    tick["waiting"] if tick else {}, tick["client_ms"] if tick else 0.0,
                    (stats["launched"] - before["launched"]) / took, (found["SUCCEEDED"] - done_before) / took,
                    queues[0], queues[1],
                )
            )  # fmt: skip
            watch(samples[-1], found)
        before, done_before, at_before = stats, found["SUCCEEDED"], now
        over = now - began >= options.duration
        if options.mix.mode is Mode.FIXED:
            over = over or not (found["WAITING"] + found["DEPEND"] + found["RUNNING"])
        if over:
            return
        time.sleep(SAMPLE_S)


def fill_of(answers: list[dict[str, Any]], began: float, share: float = 0.99) -> tuple[float | None, float]:
    """After how many seconds ticks had booked `share` of the cores, and the least share of all ticks since then."""
    filled_s, least = None, 0.0
    for answer in answers:
        booked = 1 - answer["idle_cores"] / max(answer["cores"], 1)
        if filled_s is None and booked >= share:
            filled_s, least = answer["at"] - began, booked
        least = min(least, booked)
    return filled_s, least


def _summary(
    options: Options, around: Stage, began: float, samples: list[Sample], found: dict[str, int],
    totals: dict[str, Any], faults: int, cores: int, hosts: int,
) -> dict[str, Any]:  # fmt: skip
    # The farm takes a while to fill; what is after that is the steady state.
    steady = samples[len(samples) // 3 :]
    planned = [answer for answer in around.ticks.answers if answer["status"] == "planned"]
    ticks = [answer["client_ms"] for answer in planned]
    # Ticks after the end of the feed, while the farm runs empty, are no part of it.
    filled_s, held = fill_of([one for one in planned if one["at"] <= began + samples[-1].at], began)
    return {
        "feed": options.mix.mode.value,
        "hosts": hosts,
        "cores": cores,
        "seconds": round(samples[-1].at, 1),
        "frames_done": found["SUCCEEDED"],
        "frames_dead": found["DEAD"],
        "frames_waiting": found["WAITING"] + found["DEPEND"],
        "frames_per_second": round(statistics.mean(sample.done_per_s for sample in steady), 1),
        "filled_after_s": None if filled_s is None else round(filled_s, 2),
        "held_share": round(held, 4),
        "booked_share": round(statistics.mean(sample.booked for sample in steady), 4),
        "busy_share": round(statistics.mean(sample.busy for sample in steady), 4),
        "ticks": len(ticks),
        "tick_median_ms": round(statistics.median(ticks), 1),
        "tick_max_ms": round(max(ticks), 1),
        "launched": totals["launched"],
        "double_launches": totals["doubles"],
        "overbooked_hosts": totals["overbooked"],
        "unreported": totals["unreported"],
        "tick_errors": len(around.ticks.wrong()),
        "accounting_faults": faults,
    }


def use_of(samples: list[Sample]) -> report.Plot:
    """How much of the farm was used, over time: the farm is idle at 0 s."""
    return report.Plot(
        "Cores, share of the farm", [0.0, *(s.at for s in samples)],
        {
            "booked": [0.0, *(100 * s.booked for s in samples)],
            "busy with frames": [0.0, *(100 * s.busy for s in samples)],
        },
        "%", 100,
    )  # fmt: skip


def _write(options: Options, summary: dict[str, Any], samples: list[Sample]) -> Path:
    """The report and its numbers under var/sim/; returns the path of the former."""
    directory = cluster.VAR / "sim"
    directory.mkdir(parents=True, exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S")
    at = [sample.at for sample in samples]
    reasons = sorted({reason for sample in samples for reason in sample.waiting})
    plots = [
        use_of(samples),
        report.Plot(
            "Waiting frames by reason", at, {r: [s.waiting.get(r, 0) for s in samples] for r in reasons}
        ),
        report.Plot("Length of a tick", at, {"tick": [s.tick_ms for s in samples]}, " ms"),
        report.Plot(
            "Frames a second", at,
            {"launched": [s.launches_per_s for s in samples], "done": [s.done_per_s for s in samples]},
        ),
        report.Plot(
            "Queues", at,
            {"launches": [s.launch_queue for s in samples], "completions": [s.completion_queue for s in samples]},
        ),
    ]  # fmt: skip
    mix = ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in vars(options.mix).items()
        if value and key not in ("mode", "widest_cores", "most_memory_gib")
    )  # fmt: skip
    words = (
        f"Feed {options.mix.mode.value} ({mix}); time compressed {options.compress:g} times; seed {options.seed}; "
        f"a tick every {options.every_ms} ms."
    )
    if options.picture:
        options.picture.write_text(report.picture(use_of(samples)))
    path = directory / f"{name}.html"
    path.write_text(report.page("Simulated farm", words, summary, plots))
    (directory / f"{name}.json").write_text(
        json.dumps({"summary": summary, "samples": [asdict(sample) for sample in samples]})
    )
    return path


class Recent:
    """The last values of a number, as a line of bars."""

    BARS = " ▁▂▃▄▅▆▇█"

    def __init__(self, length: int = 60) -> None:
        self._values: deque[float] = deque(maxlen=length)

    def add(self, value: float) -> str:
        self._values.append(value)
        highest = max(self._values) or 1.0
        return "".join(self.BARS[round(value / highest * (len(self.BARS) - 1))] for value in self._values)
