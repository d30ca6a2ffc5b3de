"""The launcher's way into the database: one function call a step, on a connection that is made anew when it breaks.

Each duty has a Link of its own, so that no slow call of one delays another. Autocommit: no transaction outlives a call.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg

from launcher import log

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0


class DatabaseAway(Exception):
    """The database cannot be reached (or has just gone); the same call may be made again."""


class Refused(Exception):
    """The database refused the data with one of our codes (QM…); the same call would be refused again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Link:
    """One autocommit connection, made when first needed and again after it broke."""

    def __init__(self, dsn: str, duty: str) -> None:
        self._dsn = dsn
        self._name = f"maestro launcher {duty}"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        """The open connection; raises DatabaseAway when there is none to be had."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            await self.close()
            try:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, application_name=self._name, connect_timeout=10,
                    # A pooler between us and the server may give the next call another session.
                    prepare_threshold=None,
                    # A promoted standby takes over; a host that vanished is noticed within half a minute.
                    target_session_attrs="read-write", keepalives_idle=10, keepalives_interval=5, keepalives_count=3,
                )  # fmt: skip
            except psycopg.OperationalError as error:
                raise DatabaseAway(_first_line(error)) from None
        return self._connection

    async def call(self, sql: str, *arguments: Any) -> Any:
        """First column of the first row. Raises DatabaseAway, Refused, or psycopg.Error for what nobody foresaw."""
        async with self._turn:
            connection = await self.connection()
            try:
                cursor = await connection.execute(sql, arguments)
                row = await cursor.fetchone()
                return row[0] if row else None
            except psycopg.Error as error:
                raise _translated(error, connection) from error

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


def _translated(error: psycopg.Error, connection: psycopg.AsyncConnection[Any]) -> Exception:
    state = error.sqlstate or ""
    if state.startswith("QM"):
        hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
        return Refused(state, f"{_first_line(error)}{hint}")
    # Classes: 08 connection, 40 serialization and deadlock, 53 resources, 57 shutdown and cancel; 25006 is a standby,
    # 55P03 a lock timeout.
    transient = state[:2] in ("", "08", "40", "53", "57") or state in ("25006", "55P03")
    if transient or connection.closed or connection.broken:
        return DatabaseAway(_first_line(error))
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Rows that the database told as columns: name -> the rows' values."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class Backoff:
    """Pauses that grow from try to try, capped and jittered, so that launchers do not come back all at once."""

    def __init__(self, first_s: float = BACKOFF_FIRST_S, max_s: float = BACKOFF_MAX_S) -> None:
        self._first = first_s
        self._max = max_s
        self.tries = 0

    def reset(self) -> None:
        self.tries = 0

    def next(self) -> float:
        """Seconds to wait now."""
        pause = min(self._first * 2.0 ** min(self.tries, 20), self._max)
        self.tries += 1
        return pause * random.uniform(0.5, 1.0)


async def pause(seconds: float, wake: asyncio.Event) -> None:
    """Sleep, but no longer than until `wake` is set."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return


def away(duty: str, error: DatabaseAway, backoff: Backoff) -> float:
    """Log that the database is away, once an outage and not once a try; returns how long to wait."""
    first = backoff.tries == 0
    seconds = backoff.next()
    (log.warning if first else log.debug)("database away", duty=duty, error=error, retry_s=seconds)
    return seconds
