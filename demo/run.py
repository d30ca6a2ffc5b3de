"""The demo: a whole farm on this machine, from an empty database to a contact sheet.

1 packages, 2 private cluster and schema, 3 ticks by pg_cron, 4 launcher and RQDs (demo/farm.py), 5 the job,
6 watch it, 7 wait until the books balance, 8 summary. However it ends, nothing that it started stays, but with `keep`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from db import cluster, packages, schedule
from db.connection import connect
from db.errors import MaestroError, from_database
from db.install import install
from demo import farm, job, processes
from submit.api import submit_file

EVERY_MS = 500
HOSTS_SECONDS = 60.0  # until all RQDs have reported
FARM_STOP_SECONDS = 20.0
STALL_SECONDS = 120.0  # without any frame ending, the demo gives up
SETTLE_SECONDS = 30.0  # from the last frame to books that balance


@dataclass(frozen=True)
class Progress:
    """Counts of the job's frames, told while it runs."""

    total: int
    succeeded: int
    running: int
    dead: int


def directory() -> Path:
    return cluster.VAR / "demo"


def pictures() -> Path:
    return directory() / "pictures"


def stop() -> bool:
    """End whatever a kept or broken demo left running, ticks and cluster included. Returns whether there was any."""
    left = bool(processes.marked(directory()))
    processes.end(directory(), _farm_pid())
    private = cluster.Cluster.default()
    if private.running():
        _quiet(private)
        private.stop()
        left = True
    return left


def run(frames: int, keep: bool, say: Callable[[str], None], show: Callable[[Progress], None]) -> dict[str, Any]:
    """Run the demo with `frames` pictures; `say` gets a line a step, `show` the progress. Returns the summary.

    Raises MaestroError when a step fails; the summary says whether all frames succeeded.
    """
    started = time.monotonic()
    packages.ensure(("time",))
    processes.end(directory(), _farm_pid())
    clear()
    private = cluster.Cluster.default()
    was_running = private.running()
    kept = False
    try:
        say("starting the private PostgreSQL cluster")
        private.start()
        with connect(private.dsn()) as connection:
            say("installing Maestro")
            try:
                install(connection, standalone=True)
            except MaestroError as error:
                raise MaestroError(f"{error} (to start afresh: ./maestro db destroy)") from error
            configure(connection)
            cron_from = start_ticking(connection)
            with farm_process(private.dsn(), cron_from) as process:
                say(f"starting the launcher and {farm.HOSTS} RQDs")
                await_hosts(connection)
                say(f"submitting a film of {frames} frames")
                summary = _film(connection, frames, cron_from, say, show)
                if keep and process.stdin:
                    process.stdin.write(b"keep")
                    process.stdin.close()
                    kept = True
    except psycopg.Error as error:
        raise from_database(error) from error
    finally:
        if not kept:
            say("stopping")
            processes.end(directory(), _farm_pid())
            if private.running():
                _quiet(private)
                if not was_running:
                    private.stop()
    summary["seconds"] = round(time.monotonic() - started, 1)
    return summary


def configure(connection: psycopg.Connection[Any]) -> None:
    """Settings of the demo's farm; jobs that an earlier demo did not finish are not taken up again."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "update maestro.setting set value = %s where name = %s",
            [("facility", "mode"), (str(directory() / "logs"), "log_root")],
        )
    _give_up_jobs(connection)


def _give_up_jobs(connection: psycopg.Connection[Any]) -> None:
    left = connection.execute(
        "select j.pk_job from public.job j join public.show s using (pk_show)"
        " where j.str_state = 'PENDING' and s.str_name = %s",
        [job.SHOW],
    ).fetchall()
    for (pk_job,) in left:
        connection.execute("select maestro.kill_job(%s)", [pk_job])


def _quiet(private: cluster.Cluster) -> None:
    """No more ticks, and nothing left to run when somebody ticks again."""
    with contextlib.suppress(MaestroError, psycopg.Error), connect(private.dsn()) as connection:
        schedule.unschedule(connection)
        _give_up_jobs(connection)


def clear() -> None:
    """An empty directory for this run."""
    shutil.rmtree(directory(), ignore_errors=True)
    for name in ("pictures", "logs", "tmp"):
        (directory() / name).mkdir(parents=True)


def _farm_pid() -> int | None:
    try:
        return int((directory() / "farm.pid").read_text())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def farm_process(dsn: str, cron_from: float) -> Iterator[subprocess.Popen[bytes]]:
    """The farm's process; it ends when the pipe to it is closed, which happens even if we are killed.

    It ticks by itself until `cron_from` (seconds of the epoch). A caller that wrote `keep` and closed the pipe itself
    leaves it running.
    """
    with (directory() / "farm.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.farm", "--directory", str(directory()), "--dsn", dsn,
             "--tick-until", str(cron_from), "--tick-every-ms", str(EVERY_MS)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=cluster.ROOT, start_new_session=True,
            env={**os.environ, **processes.environment(directory())},
        )  # fmt: skip
    (directory() / "farm.pid").write_text(str(process.pid))
    try:
        yield process
    finally:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(FARM_STOP_SECONDS)


def start_ticking(connection: psycopg.Connection[Any]) -> float:
    """Have pg_cron tick. Returns the moment (seconds of the epoch) from which on it surely does; till then the farm."""
    chosen = schedule.schedule(connection, EVERY_MS)
    now = time.time()
    if chosen.schedule != schedule.MINUTELY:
        return now
    rest = 60.0 - now % 60.0
    # pg_cron looks for new jobs once a second, so the next minute may be too near.
    return now + rest if rest > 3.0 else now + rest + 60.0


def _film(
    connection: psycopg.Connection[Any], frames: int, cron_from: float,
    say: Callable[[str], None], show: Callable[[Progress], None],
) -> dict[str, Any]:  # fmt: skip
    """Submit the film, watch it to its end, and read the summary."""
    path = directory() / "film.xml"
    path.write_text(job.spec(frames, pictures()))
    first_tick = _one(connection, "select coalesce(max(tick_id), 0) from maestro.tick")
    pk_job = submit_file(connection, str(path))["jobs"][0]["pk_job"]
    _watch(connection, pk_job, show)
    say("waiting for the last reports")
    settle(connection)
    return _summary(connection, pk_job, frames, first_tick, cron_from)


def _watch(connection: psycopg.Connection[Any], pk_job: str, show: Callable[[Progress], None]) -> None:
    """Return when no frame of the job can run any more."""
    ended, deadline = -1, time.monotonic() + STALL_SECONDS
    while True:
        row = connection.execute(
            "select count(*), count(*) filter (where str_state = 'SUCCEEDED'),"
            " count(*) filter (where str_state = 'RUNNING'), count(*) filter (where str_state in ('DEAD', 'EATEN'))"
            " from public.frame where pk_job = %s",
            [pk_job],
        ).fetchone()
        assert row is not None
        progress = Progress(*row)
        show(progress)
        if progress.succeeded == progress.total:
            return
        waiting = progress.total - progress.succeeded - progress.dead
        if progress.dead and not progress.running and waiting <= 1:
            return  # all that could run has; the contact sheet waits for a dead frame
        if progress.succeeded + progress.dead > ended:
            ended, deadline = progress.succeeded + progress.dead, time.monotonic() + STALL_SECONDS
        elif time.monotonic() > deadline:
            raise MaestroError(f"no frame ended for {STALL_SECONDS:.0f} s; see the logs in {directory()}")
        time.sleep(0.2)


def settle(connection: psycopg.Connection[Any]) -> None:
    """Wait until the demo's hosts have all of their memory and cores back."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        busy = _one(
            connection,
            "select count(*) from public.host where str_name like 'demo-host-%'"
            " and (int_cores_idle, int_mem_idle) is distinct from (int_cores, int_mem)",
        )
        if not busy:
            return
        time.sleep(0.1)


def _summary(
    connection: psycopg.Connection[Any], pk_job: str, frames: int, first_tick: int, cron_from: float
) -> dict[str, Any]:
    layers = {
        name: (total, succeeded)
        for name, total, succeeded in connection.execute(
            "select l.str_name, count(*), count(*) filter (where f.str_state = 'SUCCEEDED')"
            " from public.frame f join public.layer l using (pk_layer) where f.pk_job = %s group by l.str_name",
            [pk_job],
        )
    }
    by_host = dict(
        connection.execute(
            "select split_part(str_host, '/', 1), count(*) from public.frame"
            " where pk_job = %s and str_state = 'SUCCEEDED' group by 1 order by 1",
            [pk_job],
        ).fetchall()
    )
    ticks, by_cron, mean_ms = connection.execute(
        "select count(*), count(*) filter (where started_at >= to_timestamp(%s)),"
        " coalesce(round(avg(ms), 1), 0)::float from maestro.tick where tick_id > %s",
        [cron_from, first_tick],
    ).fetchone() or (0, 0, 0.0)
    hosts = connection.execute(
        "select str_name, int_mem, int_mem_idle, int_cores, int_cores_idle from public.host"
        " where str_name like 'demo-host-%' order by str_name"
    ).fetchall()
    files = sorted(path.name for path in pictures().glob("*.png"))
    return {
        "frames_total": frames,
        "frames_succeeded": layers["render"][1],
        "contact_sheet": layers["contact"][1] == 1 and "contact.png" in files,
        "seconds": 0.0,
        "ticks": ticks,
        "ticks_by_pg_cron": by_cron,
        "mean_tick_ms": mean_ms,
        "accounting_faults": _one(connection, "select count(*) from maestro.check_accounting()"),
        "hosts": len(hosts),
        "hosts_whole": all(mem == mem_idle and cores == idle for _, mem, mem_idle, cores, idle in hosts),
        "frames_by_host": by_host,
        "pictures": [str(pictures() / name) for name in files],
    }


def await_hosts(connection: psycopg.Connection[Any]) -> None:
    """Return when every RQD of this run has reported."""
    begin = _one(connection, "select now()")
    deadline = time.monotonic() + HOSTS_SECONDS
    while time.monotonic() < deadline:
        up = _one(
            connection,
            "select count(*) from public.host h join public.host_stat hs using (pk_host)"
            " where h.str_name like 'demo-host-%%' and hs.str_state = 'UP' and hs.ts_ping > %s",
            begin,
        )
        if up >= farm.HOSTS:
            return
        time.sleep(0.1)
    raise MaestroError(f"the RQDs did not report within {HOSTS_SECONDS:.0f} s; see the logs in {directory()}")


def _one(connection: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    """The only value that `query` returns."""
    row = connection.execute(query, values or None).fetchone()
    assert row is not None
    return row[0]
