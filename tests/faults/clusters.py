"""Clusters that a test may stop, crash and promote: each its own, in database `maestro`, with Maestro installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from db.cluster import Cluster, free_port
from db.install import install

SMALL = (("shared_buffers", "'64MB'"), ("max_wal_size", "'512MB'"), ("cron.database_name", "'maestro'"))


@contextlib.contextmanager
def own_cluster(*more: tuple[str, str]) -> Iterator[Cluster]:
    """A running cluster; destroyed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="maestro-fault-"))
    os.chmod(directory, 0o755)
    made = Cluster(directory / "pg", extra=(*SMALL, *more))
    try:
        made.start()
        with psycopg.connect(made.dsn(), autocommit=True) as connection:
            install(connection, standalone=True)
        yield made
    finally:
        made.destroy()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def standby_of(primary: Cluster) -> Iterator[Cluster]:
    """A streaming standby that the primary waits for at every commit; destroyed at the end."""
    made = Cluster(primary.directory.parent / "standby")
    made.directory.mkdir()
    shutil.chown(made.directory, *_owner(primary.directory))
    (made.directory / "port").write_text(str(free_port()))
    try:
        made._run(
            "pg_basebackup", "-D", str(made.data), "-R", "-X", "stream", "-c", "fast", "-d", primary.dsn("postgres"),
        )  # fmt: skip
        made.start()
        with psycopg.connect(primary.dsn("postgres"), autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
            wait(lambda: connection.execute(
                "select from pg_stat_replication where sync_state = 'sync'"
            ).fetchone() is not None)  # fmt: skip
        yield made
    finally:
        made.destroy()


def _owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def promote(standby: Cluster) -> None:
    standby._run("pg_ctl", "-D", str(standby.data), "-w", "promote")


def kill_server(cluster: Cluster) -> None:
    """kill -9 of the postmaster: its children notice and end."""
    lock = cluster.data / "postmaster.pid"
    os.kill(int(lock.read_text().splitlines()[0]), signal.SIGKILL)
    wait(lambda: not _alive_in(cluster.data))
    # Where nobody takes note of the dead process, in a container, its id would look alive to the next start.
    lock.unlink()


def _alive_in(directory: Path) -> bool:
    """Whether a process works in the directory, as every PostgreSQL process does in its data directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile; a dead one has no directory
            if (process / "cwd").readlink() == directory:
                return True
    return False


def wait(condition: Callable[[], Any], within_s: float = 30.0) -> None:
    """Return once the condition holds; AssertionError after the time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s"
        time.sleep(0.02)
