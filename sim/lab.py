"""A place to measure in: a private cluster of its own, templates made once, and a fresh database a run.

The cluster lives in a new directory under var/ (a real disk: a temporary directory may be memory, and fsync then costs
nothing) and is destroyed at the end, whatever happens.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from db import cluster
from db.cluster import Cluster
from db.connection import connect
from db.install import install

Say = Callable[[str], None]
Build = Callable[[psycopg.Connection[Any]], None]

# Statements are counted in runs of their own: tracking is off while time is measured.
EXTRA = (
    ("shared_preload_libraries", "'pg_cron, pg_stat_statements'"),
    ("pg_stat_statements.track", "none"),
    ("track_io_timing", "off"),
)
EMPTY = "lab_empty"  # template: Maestro installed, nothing else


@dataclass(frozen=True)
class Lab:
    """`directory` is this lab's own; `cluster` runs in it."""

    directory: Path
    cluster: Cluster

    def template(self, name: str, build: Build, source: str = EMPTY) -> None:
        """Make template database `name`: a copy of `source` in which `build` worked, vacuumed and analyzed."""
        self.clone(source, name)
        with connect(self.cluster.dsn(name)) as connection:
            build(connection)
            connection.execute("vacuum (analyze)")

    def clone(self, template: str, name: str) -> str:
        """A fresh database `name`, the copy of `template`; one of that name is dropped. Returns its DSN."""
        with connect(self.cluster.dsn("postgres")) as connection:
            # Copying files beats logging every page, and leaves no WAL of the copy to be written out later.
            how = " strategy file_copy" if connection.info.server_version >= 150000 else ""
            connection.execute(f"drop database if exists {name} with (force)")
            connection.execute(f"create database {name} template {template}{how}")
        return self.cluster.dsn(name)

    def drop(self, name: str) -> None:
        with connect(self.cluster.dsn("postgres")) as connection:
            connection.execute(f"drop database if exists {name} with (force)")


@contextlib.contextmanager
def lab(name: str, say: Say) -> Iterator[Lab]:
    """A lab for one command; `say` gets a line a step. Ends with nothing left."""
    base = cluster.reachable(cluster.VAR)
    base.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    directory.chmod(0o755)
    private = Cluster(directory / "pg", extra=EXTRA)
    try:
        say("starting a private PostgreSQL cluster")
        private.start()
        with connect(private.dsn("postgres")) as connection:
            connection.execute(f"create database {EMPTY}")
        with connect(private.dsn(EMPTY)) as connection:
            install(connection, standalone=True)
            connection.execute("create extension pg_stat_statements")
        yield Lab(directory, private)
    except Exception:
        _keep_logs(directory, base / f"{name}-failed")
        raise
    finally:
        private.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def _keep_logs(directory: Path, where: Path) -> None:
    """What the processes of a lab that failed have written, in place of an earlier failure's."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for log in [*directory.glob("*.log"), *directory.glob("*/*.log")]:
        shutil.copy(log, where / log.name)
