"""Clusters that a test may stop, crash and promote: each its own, in database `maestro`, with Maestro installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from db.cluster import Cluster
from db.install import install
from sim.standby import kill_server, promote, standby_of

__all__ = ["kill_server", "own_cluster", "promote", "standby_of", "wait"]

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


def wait(condition: Callable[[], Any], within_s: float = 30.0) -> None:
    """Return once the condition holds; AssertionError after the time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s"
        time.sleep(0.02)
