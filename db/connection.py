"""Which database, and the connection to it: --dsn, else the PG* variables, else the private cluster."""

from __future__ import annotations

import os
from typing import Any

import psycopg

from db import cluster
from db.errors import MaestroError

MIN_SERVER_VERSION = 140000  # PostgreSQL 14: first with jsonb subscripts and the xid8-aware statistics we read


def resolve(dsn: str | None) -> str:
    """The DSN to use; starts the private cluster when neither `dsn` nor PG* variables name a database."""
    if dsn:
        return dsn
    if any(name in os.environ for name in ("PGHOST", "PGSERVICE", "PGDATABASE", "PGPORT", "PGHOSTADDR")):
        return ""  # libpq reads the variables itself
    private = cluster.Cluster.default()
    private.start()
    return private.dsn()


def connect(dsn: str | None, **options: Any) -> psycopg.Connection[Any]:
    """An autocommit connection. Raises MaestroError with one line if the server is away or too old."""
    target = resolve(dsn)
    try:
        connection = psycopg.connect(target, autocommit=True, application_name="maestro", **options)
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[-1]
        raise MaestroError(f"cannot connect to the database: {reason}") from None
    version = connection.info.server_version
    if version < MIN_SERVER_VERSION:
        connection.close()
        raise MaestroError(f"the server is PostgreSQL {version // 10000}; Maestro needs 14 or later")
    return connection
