"""A farm without processes, on virtual time: the real ticks and reports, called one after the other.

A step is one tick, after which what it booked counts as launched, the clock moves on, and the frames whose time is over
report their end through the intake's function. Nothing here is timed; what happens is the same on any machine.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

from db.errors import MaestroError
from sim import script


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


class Inline:
    """Steps the farm. `seconds(booked)` says how long a frame runs, `ending(booked)` how it ends."""

    def __init__(
        self, connection: psycopg.Connection[Any], seconds: Callable[[Booked], float],
        ending: Callable[[Booked], End] = lambda booked: End(), seed: int = 1,
    ) -> None:  # fmt: skip
        self.connection = connection
        self.seconds = seconds
        self.ending = ending
        self.random = Random(seed)
        self.now = 0.0  # virtual seconds
        self.running: dict[str, Booked] = {}  # pk_proc -> what it runs
        self.bookings: Counter[str] = Counter()  # job name -> frames booked so far
        self.ended = 0
        self.answers: list[dict[str, Any]] = []
        self._ends: list[tuple[float, str]] = []
        self._seed = seed

    def tick(self) -> list[Booked]:
        """One tick; what it booked."""
        self._seed += 1
        answer = script.one(self.connection, "select public.maestro_tick(seed => %s)", self._seed)
        if answer["status"] != "planned" or answer["errors"]:
            raise MaestroError(f"a tick failed: {json.dumps(answer)[:1000]}")
        self.answers.append(answer)
        booked = [Booked(*row) for row in self.connection.execute(BOOKED).fetchall()]
        for one in booked:
            self.running[one.pk_proc] = one
            self.bookings[one.job] += 1
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

    def cores_running(self) -> int:
        """Whole cores of the frames that run."""
        return sum(one.cores for one in self.running.values()) // 100
