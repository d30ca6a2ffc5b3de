"""The third benchmark: frames from WAITING to done, launches and reports over gRPC, launcher and hosts included."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import psycopg

from db.connection import connect
from db.errors import MaestroError
from sim import bench, farm, gauge, world
from sim.lab import Lab, Say
from sim.processes import Stage, cpu_s, server_cpu_s, stage

LIFE = "bench_life"
FRAMES = 300_000  # at scale 1; what a minute's run cannot use up
# A frame of the workload takes 74 core-minutes: a full farm then ends about 2,600 frames a second, more than any
# machine of two cores passes, so that the machine is measured and not the farm.
COMPRESS = 200.0
SETTLE_SECONDS = 60.0
STANDSTILL_SECONDS = 15.0  # a pause of two seconds that took so long: the machine was suspended, or starved

DONE = "select coalesce(sum(int_succeeded_count), 0)::bigint from public.job_stat"


def lifecycle(
    lab: Lab, scale: float, seconds: float, warm_up: float, every_ms: int, compress: float, say: Say,
) -> dict[str, Any]:  # fmt: skip
    """Run the farm for `warm_up` and then `seconds` seconds; count the frames that were done in the latter."""
    frames = round(FRAMES * scale)
    say(f"making the farm and {frames:,} frames")
    hosts = world.hosts(scale)

    def build(connection: psycopg.Connection[Any]) -> None:
        world.boot(connection, hosts)
        farm.add_workload(connection, frames)

    lab.template(LIFE, build)
    dsn = lab.clone(LIFE, bench.RUN)
    path = world.save(hosts, lab.directory / "hosts.json")
    with connect(dsn) as connection, stage(dsn, lab.directory) as around:
        connection.execute("checkpoint")
        around.start_launcher()
        around.start_farm(path, {"compress": compress, "seed": 1})
        world.dial(connection, hosts, [around.farm.target])
        around.await_launchers(connection)
        around.start_ticks(every_ms / 1000)
        _watch(around, connection, "warming up", warm_up, say)
        before, done_before, cpu_before = _readings(around, connection)
        fills: list[float] = []
        took = _watch(around, connection, "measuring", seconds, say, fills)
        after, done_after, cpu_after = _readings(around, connection)
        ticks = [
            answer for answer in around.ticks.answers if answer["at"] >= before["at"] and answer["status"] == "planned"
        ]
        running = bench.one(connection, "select count(*) from public.proc")
        queues = bench.one(
            connection,
            "select jsonb_build_object('launches', (select count(*) from maestro.launch where state <> 'refused'),"
            " 'completions', (select count(*) from maestro.completion))",
        )
        say("letting what runs end")
        faults = settle(around, connection)
        totals = around.farm.stats()
    if wrong := around.ticks.wrong():
        raise MaestroError(f"a tick failed: {wrong[0]}")
    frames_done = done_after - done_before
    cost = after["gauge"].since(before["gauge"])
    tick_ms = [answer["client_ms"] for answer in ticks]
    return {
        "bench": "lifecycle",
        "scale": scale,
        "runs": 1,
        "frames_per_second": round(frames_done / took, 1),
        "frames": frames_done,
        "seconds": round(took, 1),
        "ticks": len(ticks),
        "tick_every_ms": every_ms,
        "tick_median_ms": round(statistics.median(tick_ms), 1) if tick_ms else None,
        "tick_max_ms": round(max(tick_ms), 1) if tick_ms else None,
        "phases_ms": bench.phases(ticks),
        "cores_used": round((after["farm"]["core_seconds"] - before["farm"]["core_seconds"]) / took),
        "cores": sum(host["cores"] for host in hosts) // 100,
        "fill": round(statistics.median(fills), 5),
        "fill_min": round(min(fills), 5),
        "running": running,
        "queues_at_end": queues,
        "rows_fetched_per_frame": round(cost.fetched / max(frames_done, 1), 1),
        "rows_written_per_frame": round((cost.inserted + cost.updated + cost.deleted) / max(frames_done, 1), 1),
        "wal_bytes_per_frame": round(cost.wal / max(frames_done, 1)),
        "xids_per_frame": round(cost.xids / max(frames_done, 1), 3),
        # Processor time a frame, ms: where the machine's cores go.
        "cpu_ms_per_frame": {
            name: round((cpu_after[name] - cpu_before[name]) * 1000 / max(frames_done, 1), 3) for name in cpu_before
        },
        "launched": totals["launched"],
        "double_launches": totals["doubles"],
        "overbooked_hosts": totals["overbooked"],
        "unreported": totals["unreported"],
        "accounting_faults": faults,
    }


def _readings(around: Stage, connection: psycopg.Connection[Any]) -> tuple[dict[str, Any], int, dict[str, float]]:
    stats = around.farm.stats()
    reading = {"gauge": gauge.read(connection), "farm": stats, "at": time.time()}
    cpu = {
        "launcher": cpu_s(around.launchers[0].process.pid),
        "farm": cpu_s(around.farm.process.pid),
        "postgres": server_cpu_s(connection),
        "bench": sum(os.times()[:2]),
    }
    return reading, int(bench.one(connection, DONE)), cpu


def _watch(
    around: Stage, connection: psycopg.Connection[Any], title: str, seconds: float, say: Say,
    fills: list[float] | None = None,
) -> float:  # fmt: skip
    """Wait, showing how it goes; returns the seconds that it took. `fills` gets the share of booked cores, at times."""
    began = last = time.monotonic()
    done = bench.one(connection, DONE)
    while time.monotonic() - began < seconds:
        time.sleep(min(2.0, max(began + seconds - time.monotonic(), 0.01)))
        if (stood := time.monotonic() - last) > STANDSTILL_SECONDS:
            raise MaestroError(f"the machine stood still for {stood:.0f} s: nothing can be measured on it now")
        around.launchers[0].check()
        if fills is not None:
            fills.append(bench.fill(connection))
        now, done_now = time.monotonic(), bench.one(connection, DONE)
        stats = around.farm.stats()
        say(f"{title}: {(done_now - done) / (now - last):,.0f} frames/s, {stats['cores_running']:,} cores busy")
        last, done = now, done_now
    return time.monotonic() - began


def settle(around: Stage, connection: psycopg.Connection[Any]) -> int:
    """Book nothing more, let the farm end what it runs, and apply all reports; returns the accounting faults."""
    connection.execute("update public.job set b_paused = true where str_state = 'PENDING'")
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        around.farm.tell("finish")
        left = bench.one(
            connection,
            "select (select count(*) from public.proc) + (select count(*) from maestro.completion)"
            " + (select count(*) from maestro.launch where state <> 'refused')",
        )
        if not left:
            break
        time.sleep(0.2)
    around.stop_ticks()
    return bench.accounting_faults(connection)
