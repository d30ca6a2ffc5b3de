"""A farm without processes, on virtual time: the real ticks and reports, called one after the other.

A step is one tick, after which what it booked counts as launched, the clock moves on, and the frames whose time is over
report their end through the intake's function. The database knows no other clock than its own, so time passes by making
what it remembers older: a step of 30 s is 30 s for it, however long the tick took. What happens is the same on any
machine.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import psycopg

from db.errors import MaestroError
from sim import script, world


@dataclass(frozen=True, slots=True)
class Booked:
    """A frame that a tick booked. Cores in core points, memory in KiB."""

    pk_proc: str
    pk_frame: str
    pk_layer: str
    pk_job: str
    job: str
    layer: str
    number: int
    host: str
    cores: int
    mem: int
    gpus: int


@dataclass(frozen=True, slots=True)
class End:
    """How a frame ends: exit status, signal, KiB at its peak; `reports` is how often its end is reported."""

    status: int = 0
    signal: int = 0
    rss: int | None = None
    reports: int = 1


BOOKED = """
    with gone as (delete from maestro.launch as l where l.state = 'ready' returning l.pk_proc)
    select p.pk_proc, p.pk_frame, p.pk_layer, p.pk_job, j.str_name, y.str_name, f.int_number, h.str_name,
           p.int_cores_reserved, p.int_mem_reserved, p.int_gpus_reserved
      from gone as g
      join public.proc as p using (pk_proc)
      join public.frame as f on f.pk_frame = p.pk_frame
      join public.layer as y on y.pk_layer = p.pk_layer
      join public.job as j on j.pk_job = p.pk_job
      join public.host as h on h.pk_host = p.pk_host
     order by p.pk_frame
"""


# What rules measure time by. Hosts' last signs of life stay: hosts here are as fresh as they ever were.
AGE = (
    "update maestro.tick set started_at = started_at - %(by)s",
    "update public.frame as f set ts_started = f.ts_started - %(by)s from public.proc as p"
    " where p.pk_frame = f.pk_frame",
    "update public.proc set ts_dispatched = ts_dispatched - %(by)s",
    "update public.layer set ts_start_after = ts_start_after - %(by)s where ts_start_after is not null",
    "update public.limit_record set ts_reported = ts_reported - %(by)s where ts_reported is not null",
    "update public.limit_usage set ts_watermark = ts_watermark - %(by)s, ts_updated = ts_updated - %(by)s",
    "update maestro.limit_probe set denied_at = denied_at - %(by)s, next_at = next_at - %(by)s",
    "update maestro.reservation set granted_at = granted_at - %(by)s",
)


class Inline:
    """Steps the farm. `seconds(booked)` says how long a frame runs, asked at its start, `ending(booked)` how it ends,
    asked at its end. `started` is told before all else what begins to run.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], seconds: Callable[[Booked], float],
        ending: Callable[[Booked], End] = lambda booked: End(),
        started: Callable[[list[Booked]], None] = lambda booked: None, seed: int = 1,
    ) -> None:  # fmt: skip
        self.connection = connection
        self.seconds = seconds
        self.ending = ending
        self.started = started
        self.random = Random(seed)
        self.now = 0.0  # virtual seconds
        self.running: dict[str, Booked] = {}  # pk_proc -> what it runs
        self.bookings: Counter[str] = Counter()  # job name -> frames booked so far
        self.ended = 0
        self.answers: list[dict[str, Any]] = []
        self._ends: list[tuple[float, str]] = []
        self._seed = seed
        self._moment: datetime = script.one(connection, "select clock_timestamp()")  # the database's, of `now`

    def tick(self) -> list[Booked]:
        """One tick; what it booked."""
        self._seed += 1
        answer = script.one(self.connection, "select public.maestro_tick(seed => %s)", self._seed)
        if answer["status"] != "planned" or answer["errors"]:
            raise MaestroError(f"a tick failed: {json.dumps(answer)[:1000]}")
        self.answers.append(answer)
        self._moment = script.one(self.connection, "select max(started_at) from maestro.tick")
        booked = [Booked(*row) for row in self.connection.execute(BOOKED).fetchall()]
        for one in booked:
            self.running[one.pk_proc] = one
            self.bookings[one.job] += 1
        self.started(booked)
        for one in booked:
            heapq.heappush(self._ends, (self.now + self.seconds(one), one.pk_proc))
        return booked

    def step(self, seconds: float) -> list[Booked]:
        """A tick, then `seconds` of virtual time."""
        booked = self.tick()
        self.advance(seconds)
        return booked

    def advance(self, seconds: float) -> None:
        """Move the clock on and report what ended."""
        self.now += seconds
        passed = script.one(self.connection, "select clock_timestamp()") - self._moment
        with self.connection.transaction():
            for statement in AGE:
                self.connection.execute(statement, {"by": timedelta(seconds=seconds) - passed})
        self._moment = script.one(self.connection, "select clock_timestamp()")
        over = []
        while self._ends and self._ends[0][0] <= self.now:
            _, pk_proc = heapq.heappop(self._ends)
            one = self.running.pop(pk_proc, None)
            if one is not None:
                over.append(one)
        self.report(over)

    def report(self, over: list[Booked]) -> None:
        """Report these frames' ends, in no particular order."""
        reports = []
        for one in over:
            end = self.ending(one)
            report = {
                "host": {"name": one.host, "free_mem": 1},
                "frame": {
                    "resource_id": one.pk_proc, "frame_id": one.pk_frame,
                    "max_rss": one.mem if end.rss is None else end.rss,
                },
                "exit_status": end.status, "exit_signal": end.signal, "run_time": 1,
            }  # fmt: skip
            reports += [report] * end.reports
        self.random.shuffle(reports)
        for start in range(0, len(reports), 1000):
            self.connection.execute(
                "select maestro.report_completion(%s::jsonb)", [json.dumps(reports[start : start + 1000])]
            )
        self.ended += len(over)

    def report_hosts(self, hosts: list[world.Host], used: Callable[[Booked], int]) -> None:
        """Status reports of all hosts; `used(booked)` is the memory (KiB) that a frame uses now."""
        by_host: dict[str, list[Booked]] = {}
        for one in self.running.values():
            by_host.setdefault(one.host, []).append(one)
        reports = []
        for made in hosts:
            frames = []
            for one in by_host.get(made["name"], []):
                rss = used(one)
                frames.append({
                    "resource_id": one.pk_proc, "frame_id": one.pk_frame, "job_name": one.job, "rss": rss,
                    "max_rss": rss,
                })  # fmt: skip
            reports.append({
                "host": {
                    "name": made["name"], "num_procs": 1, "cores_per_proc": made["cores"], "total_mem": made["mem"],
                    "free_mem": made["mem"] // 2, "tags": made["tags"], "attributes": {"SP_OS": "linux"},
                    "boot_time": 1,
                },
                "frames": frames,
            })  # fmt: skip
        self.connection.execute("select maestro.report_status(%s::jsonb)", [json.dumps(reports)])

    def drain(self, steps: int = 1000, seconds: float = 60.0) -> bool:
        """Step until nothing runs and nothing is booked any more; False when `steps` did not get there."""
        for _ in range(steps):
            booked = self.step(seconds)
            if not booked and not self.running:
                # The ends that the last step reported are still in the inbox.
                if not self.tick():
                    return True
                self.advance(seconds)
        return False

    def cores_of(self, job: str = "") -> int:
        """Whole cores of the frames that run, of one job if it is named."""
        return sum(one.cores for one in self.running.values() if not job or one.job == job) // 100

    def fill(self) -> float:
        """Share of all cores that were booked after the last tick."""
        return 1 - float(self.answers[-1]["idle_cores"]) / float(self.answers[-1]["cores"])
