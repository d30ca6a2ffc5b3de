"""What work costs the database: rows, WAL, transaction ids, statements, and the session's memory, as differences."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg


@dataclass(frozen=True)
class Reading:
    """Counters of one database at one moment: rows, bytes, transaction ids."""

    fetched: int
    returned: int
    inserted: int
    updated: int
    deleted: int
    wal: int
    xids: int

    def since(self, earlier: Reading) -> Reading:
        return Reading(*(now - then for now, then in zip(vars(self).values(), vars(earlier).values(), strict=True)))


def read(connection: psycopg.Connection[Any]) -> Reading:
    """The counters, with what this session did included; what other sessions did may be a second late."""
    if connection.info.server_version >= 150000:
        connection.execute("select pg_stat_force_next_flush()")
    row = connection.execute(
        """
        select tup_fetched, tup_returned, tup_inserted, tup_updated, tup_deleted,
               pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        from pg_stat_database where datname = current_database()
        """
    ).fetchone()
    assert row is not None
    return Reading(*row)


def session_mb(connection: psycopg.Connection[Any]) -> float | None:
    """Private memory of the session's server process, MiB: without shared buffers. None where /proc is not readable."""
    values = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{connection.info.backend_pid}/status").read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in ("RssAnon",):
                values[key] = int(rest.split()[0]) / 1024
    return round(values["RssAnon"], 1) if values else None


def statements(connection: psycopg.Connection[Any], work: str) -> int:
    """How many statements `work`, one statement, executes, those inside functions included."""
    connection.execute("set pg_stat_statements.track = 'all'")
    connection.execute("select pg_stat_statements_reset()")
    connection.execute(work)
    row = connection.execute(
        "select coalesce(sum(calls), 0) from pg_stat_statements"
        " where query not like '%pg_stat_statements%' and dbid ="
        " (select oid from pg_database where datname = current_database())"
    ).fetchone()
    connection.execute("set pg_stat_statements.track = 'none'")
    assert row is not None
    return int(row[0])
