"""Fixtures: one private cluster a run, and a fresh database a test, cloned from an installed template."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from db.cluster import Cluster
from db.install import install

# Tests start processes while gRPC's threads work; its handlers for forks would only get in the way of that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

TEMPLATE = "maestro_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL of this run's own on a free port, holding an installed standalone template; gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="maestro-test-"))
    os.chmod(directory, 0o755)
    # Nothing here outlives a crash of this cluster, so it need not wait for the disk; tests of crashes make their own.
    made = Cluster(directory / "pg", extra=(("shared_buffers", "'256MB'"), ("fsync", "off")))
    try:
        made.start()
        with psycopg.connect(made.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {TEMPLATE}")
        with psycopg.connect(made.dsn(TEMPLATE), autocommit=True) as connection:
            install(connection, standalone=True)
        yield made
    finally:
        made.destroy()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def dsn(cluster: Cluster) -> Iterator[str]:
    """DSN of a fresh database with Maestro installed standalone; dropped after the test."""
    name = f"maestro_{next(_numbers)}"
    with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:
        # Copying files beats logging the copy block by block; it is the only way before PostgreSQL 15.
        copying = "strategy file_copy" if connection.info.server_version >= 150000 else ""
        connection.execute(f"create database {name} template {TEMPLATE} {copying}")
    yield cluster.dsn(name)
    with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to the test's own database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
