"""The benchmark: how long ticks take and how many frames a second pass, on a private cluster with fsync on.

    cold_fill   one tick fills an idle farm
    steady      the farm is full; frames end, a tick books as many anew
    lifecycle   frames from WAITING to done over gRPC, launcher and hosts included (sim/lifecycle.py)

Figures are taken at the client, connection not included, everything else included.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg

from db.connection import connect
from db.errors import MaestroError
from sim import farm, gauge
from sim.lab import Lab, Say

COLD = "bench_cold"
FULL = "bench_full"
RUN = "bench_run"
STEADY_FRAMES = 221_000  # at scale 1: about 19,000 of them run, the others wait
ENDED_A_ROUND = 440  # at scale 1 a tick then books about 500: what waits is smaller than what ran
PHASES = (
    "settings", "drain", "sweep", "drift", "snapshot", "group", "rank", "state", "place", "reserve", "commit",
    "publish", "total",
)  # fmt: skip

Advance = Callable[[], None]


def cold_fill(lab: Lab, scale: float, zones: int, runs: int, say: Say, advance: Advance) -> dict[str, Any]:
    """Fill the idle farm with one tick, `runs` times, each in a fresh database. `zones`: as farm.add_zones; 0: none."""
    say(f"making the farm and {round(farm.FRAMES * scale):,} frames")
    lab.template(COLD, lambda connection: _world(connection, scale, zones, round(farm.FRAMES * scale)))
    seconds, answers, fills, costs, memory = [], [], [], [], []
    faults = 0
    for number in range(1, runs + 1):
        say(f"run {number} of {runs}")
        with connect(lab.clone(COLD, RUN)) as connection:
            _settle(connection)
            before = gauge.read(connection)
        # A session of its own, as pg_cron's is each minute: what it has to load is part of the time.
        with connect(lab.cluster.dsn(RUN)) as connection:
            took, answer = tick(connection)
            costs.append(gauge.read(connection).since(before))
            memory.append(gauge.session_mb(connection))
            fills.append(fill(connection))
            faults += accounting_faults(connection)
        seconds.append(took)
        answers.append(answer)
        advance()
    with connect(lab.clone(COLD, RUN)) as connection:
        _settle(connection)
        count = gauge.statements(connection, "select public.maestro_tick(seed => 1)")
    lab.drop(RUN)
    booked = [answer["committed"] for answer in answers]
    return {
        "bench": "cold-fill",
        "scale": scale,
        "tags": zones,
        "runs": runs,
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "bookings": round(statistics.median(booked)),
        "bookings_per_s": round(statistics.median(b / s for b, s in zip(booked, seconds, strict=True))),
        "fill": round(min(fills), 5),
        "hosts": answers[0]["hosts"],
        "groups": answers[0]["groups"],
        "cores": answers[0]["cores"],
        "phases_ms": phases(answers),
        "statements": count,
        "xids": round(statistics.median(cost.xids for cost in costs)),
        "rows_fetched_per_booking": _per(costs, "fetched", booked),
        "wal_bytes_per_booking": _per(costs, "wal", booked, 0),
        "session_mb": max((size for size in memory if size is not None), default=None),
        "accounting_faults": faults,
    }


def steady(
    lab: Lab, scale: float, zones: int, runs: int, ended: int, say: Say, advance: Advance
) -> dict[str, Any]:
    """`runs` pairs of rounds on a full farm. In each `ended` running frames report their end, and one tick is timed.

    The tick of a pair's first round drains what ended and books; before that of the second what ended was drained in a
    transaction of its own, so that the tick plans and books alone.
    """
    say(f"making the farm and {round(STEADY_FRAMES * scale):,} frames")
    lab.template(FULL, lambda connection: _world(connection, scale, zones, round(STEADY_FRAMES * scale)))
    whole = Rounds()
    booking = Rounds()
    with connect(lab.clone(FULL, RUN)) as connection:
        say("filling the farm")
        first = _fill(connection)
        _settle(connection)
        waiting = one(connection, "select count(*) from public.frame where str_state = 'WAITING'")
        memory_before = gauge.session_mb(connection)
        # More rounds than counted: a farm fresh from one tick is fuller than one that has lived.
        for number in range(-2, runs + 1):
            say(f"rounds {number} of {runs}" if number > 0 else "warming up")
            for rounds in (whole, booking):
                finish_some(connection, ended, 2 * number + (rounds is whole))
                connection.execute("select maestro.drain_history()")  # as maestro.run does between ticks
                if rounds is booking:
                    connection.execute("select maestro.drain(now())")
                before = gauge.read(connection)
                took, answer = tick(connection)
                if number > 0:
                    rounds.add(took, answer, gauge.read(connection).since(before))
            if number > 0:
                advance()
        finish_some(connection, ended, 2 * runs + 2)
        count = gauge.statements(connection, "select public.maestro_tick(seed => 1)")
        result = {
            "bench": "steady",
            "scale": scale,
            "tags": zones,
            "runs": runs,
            "median_ms": _ms(booking.seconds),
            "min_ms": round(min(booking.seconds) * 1000, 1),
            "max_ms": round(max(booking.seconds) * 1000, 1),
            "booked": booking.median("committed"),
            "with_drain_ms": _ms(whole.seconds),
            "with_drain_booked": whole.median("committed"),
            "drained": whole.median("drained"),
            "waiting": waiting,
            "running": first,
            "fill": round(fill(connection), 5),
            "phases_ms": phases(booking.answers),
            "with_drain_phases_ms": phases(whole.answers),
            "statements": count,
            "xids": round(statistics.median(cost.xids for cost in whole.costs)),
            "rows_fetched": round(statistics.median(cost.fetched for cost in whole.costs)),
            "wal_bytes": round(statistics.median(cost.wal for cost in whole.costs)),
            "rows_fetched_per_frame": _per(whole.costs, "fetched", [answer["drained"] for answer in whole.answers]),
            "session_mb": gauge.session_mb(connection),
            "session_mb_before": memory_before,
            "accounting_faults": accounting_faults(connection),
        }
    lab.drop(RUN)
    return result


class Rounds:
    """Ticks of one kind: what each took at the client, its answer, and what it cost the server."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.answers: list[dict[str, Any]] = []
        self.costs: list[gauge.Reading] = []

    def add(self, seconds: float, answer: dict[str, Any], cost: gauge.Reading) -> None:
        self.seconds.append(seconds)
        self.answers.append(answer)
        self.costs.append(cost)

    def median(self, name: str) -> int:
        """Of one of the answers' numbers."""
        return round(statistics.median([int(answer[name]) for answer in self.answers]))


def _world(connection: psycopg.Connection[Any], scale: float, zones: int, frames: int) -> None:
    """The farm at `scale` with `frames` waiting frames, and ticks that are never cut short."""
    farm.add_hosts(connection, scale)
    farm.add_workload(connection, frames)
    if zones:
        farm.add_zones(connection, zones)
    _set(connection, tick_budget_ms=600_000, completions_per_tick_max=100_000, launch_backlog_max=10_000_000)


def _set(connection: psycopg.Connection[Any], **settings: object) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "update maestro.setting set value = %s where name = %s",
            [(str(value), name) for name, value in settings.items()],
        )


def _settle(connection: psycopg.Connection[Any]) -> None:
    """Nothing left over from before that the measured work would pay for."""
    connection.execute("vacuum (analyze)")
    connection.execute("checkpoint")


def tick(connection: psycopg.Connection[Any], seed: int | None = None) -> tuple[float, dict[str, Any]]:
    """One tick: seconds at the client, and its answer. Raises MaestroError when it did not plan, or met errors."""
    began = time.perf_counter()
    answer: dict[str, Any] = one(connection, "select public.maestro_tick(seed => %s)", seed)
    took = time.perf_counter() - began
    if answer["status"] != "planned" or answer["errors"]:
        raise MaestroError(f"a tick failed: {json.dumps(answer)[:2000]}")
    return took, answer


def _fill(connection: psycopg.Connection[Any]) -> int:
    """Tick until nothing more is booked; frames running then."""
    running = 0
    while True:
        booked = int(tick(connection)[1]["committed"])
        running += booked
        if booked * 200 <= running:
            # Launches are not taken in this benchmark; done ones are deleted, as launchers do.
            connection.execute("delete from maestro.launch")
            return running


def finish_some(connection: psycopg.Connection[Any], count: int, seed: int) -> None:
    """Report the end of `count` random running frames through the intake's function, and take what was launched."""
    connection.execute("delete from maestro.launch")
    reports = one(
        connection,
        """
        select jsonb_agg(jsonb_build_object(
            'host', jsonb_build_object('name', p.str_name, 'free_mem', p.int_mem_idle),
            'frame', jsonb_build_object(
                'resource_id', p.pk_proc, 'frame_id', p.pk_frame, 'max_rss', p.int_mem_reserved / 2
            ),
            'exit_status', 0, 'exit_signal', 0, 'run_time', 600
        ))
        from (
            select p.pk_proc, p.pk_frame, p.int_mem_reserved, h.str_name, h.int_mem_idle
            from public.proc as p join public.host as h using (pk_host)
            order by md5(p.pk_proc || %s::text) limit %s
        ) as p
        """,
        str(seed),
        count,
    )
    connection.execute("select maestro.report_completion(%s::jsonb)", [json.dumps(reports)])


def fill(connection: psycopg.Connection[Any]) -> float:
    """Booked cores of all cores, 0 to 1."""
    return float(
        one(connection, "select sum(int_cores - int_cores_idle)::float / greatest(sum(int_cores), 1) from public.host")
    )


def accounting_faults(connection: psycopg.Connection[Any]) -> int:
    return int(one(connection, "select count(*) from maestro.check_accounting()"))


def phases(answers: list[dict[str, Any]]) -> dict[str, float]:
    """Median of each phase, ms, in the order in which they run; jsonb has lost it."""
    names = sorted(answers[0]["ms"], key=lambda name: (PHASES.index(name) if name in PHASES else len(PHASES), name))
    return {name: round(statistics.median(answer["ms"].get(name, 0) for answer in answers), 1) for name in names}


def _ms(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 1)


def _per(costs: list[gauge.Reading], name: str, units: list[int], digits: int = 1) -> float:
    """Median of a counter a unit."""
    ratios: list[float] = [getattr(c, name) / max(u, 1) for c, u in zip(costs, units, strict=True)]
    return round(statistics.median(ratios), digits)


def one(connection: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    """The only value that `query` returns."""
    row = connection.execute(query, values or None).fetchone()
    assert row is not None
    return row[0]
