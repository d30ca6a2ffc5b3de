"""Scenarios about the size of a tick's work: a whole farm at once, and a full farm with a long queue.

Speed is judged by `maestro bench`. Here the processor time of the session must stay within wide bars, which a busy
machine does not move.
"""

from __future__ import annotations

import statistics
from typing import Any

import psycopg

from db.connection import connect
from sim import bench, farm, script
from sim.processes import cpu_s
from sim.verify import DATABASE, Bar, Numbers, Scenario, World

IDLE, FULL = "verify_idle", "verify_full"  # templates
ENDED_A_ROUND = 500


def _farm(given: World, frames: int) -> tuple[float, int]:
    """Scale of the farm, and how many frames there are at it."""
    scale = 0.1 if given.quick else 1.0
    return scale, round(frames * scale)


def _make(connection: psycopg.Connection[Any], scale: float, frames: int) -> None:
    farm.add_hosts(connection, scale)
    farm.add_workload(connection, frames)
    script.set_values(connection, tick_budget_ms=600_000, completions_per_tick_max=100_000)


def cold_fill(given: World) -> Numbers:
    """One tick on an idle farm. The control run may book a few frames a host and job, as dispatchers do."""
    scale, frames = _farm(given, farm.FRAMES)
    given.say(f"making the farm and {frames:,} frames")
    given.lab.template(IDLE, lambda connection: _make(connection, scale, frames))
    with connect(given.lab.clone(IDLE, DATABASE)) as connection:
        if given.control:
            script.set_values(connection, job_frame_dispatch_max=1, host_frame_dispatch_max=2)
        seconds, answer = bench.tick(connection)
        numbers = {
            "fill": bench.fill(connection), "bookings": answer["committed"],
            "cpu_s": cpu_s(connection.info.backend_pid), "seconds": seconds,
        }  # fmt: skip
        given.check(connection)
    return numbers


def steady(given: World) -> Numbers:
    """Rounds on a full farm: frames end, the next tick books their cores again. The control run cuts them short."""
    scale, frames = _farm(given, bench.STEADY_FRAMES)
    given.say(f"making the farm and {frames:,} frames")
    given.lab.template(FULL, lambda connection: _make(connection, scale, frames))
    spent, booked, fills = [], 0, []
    with connect(given.lab.clone(FULL, DATABASE)) as connection:
        given.say("filling the farm")
        while bench.tick(connection)[1]["committed"] * 200 > script.states(connection)["RUNNING"]:
            pass
        waiting = script.states(connection)["WAITING"]
        if given.control:
            script.set_values(connection, tick_budget_ms=10)
        for number in range(given.size(12, 6)):
            given.say(f"round {number + 1}")
            bench.finish_some(connection, round(ENDED_A_ROUND * min(scale * 2, 1.0)), number)
            before = cpu_s(connection.info.backend_pid)
            booked += bench.tick(connection)[1]["committed"]
            spent.append(cpu_s(connection.info.backend_pid) - before)
            fills.append(bench.fill(connection))
        given.check(connection)
    return {
        "median_cpu_s": statistics.median(spent), "booked": booked, "fill": min(fills), "waiting": waiting,
        "rounds": len(spent),
    }  # fmt: skip


SCENARIOS = (
    Scenario(
        "COLD_FILL", "One tick fills an idle farm.", cold_fill,
        (Bar("fill", at_least=0.995), Bar("cpu_s", at_most=10)), ("bookings",), ("fill",), quick=True,
    ),
    Scenario(
        "STEADY", "A tick on a full farm with 200,000 waiting frames books what has ended.", steady,
        (Bar("fill", at_least=0.99), Bar("median_cpu_s", at_most=1.5)), ("booked", "waiting"), ("fill",),
        # Not quick: on a small farm a tick ends before the shortest budget, and the control run could not tell.
    ),
)  # fmt: skip
