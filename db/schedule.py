"""The pg_cron job that makes the ticks. pg_cron lives in one database of the server, perhaps not in Maestro's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from db.errors import MaestroError, from_database

SHORTEST_MS = 50
LONGEST_MS = 59_000
MINUTELY = "* * * * *"
RUN_SECONDS = 59  # a minute's run stops in time for the next one
UNITS_MS = {"ms": 1, "s": 1000, "second": 1000, "seconds": 1000}


@dataclass(frozen=True)
class Schedule:
    """What was scheduled: pg_cron's schedule, its command, and when the first tick comes at the latest."""

    schedule: str
    command: str
    first_within_seconds: int


def parse_every(text: str) -> int:
    """Milliseconds from `500ms`, `2s` or `1 second`. Raises MaestroError for anything else or outside the limits."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|seconds?)\s*", text)
    milliseconds = round(float(found[1]) * UNITS_MS[found[2]]) if found else 0
    if not SHORTEST_MS <= milliseconds <= LONGEST_MS:
        limits = f"{SHORTEST_MS}ms and {LONGEST_MS // 1000}s"
        raise MaestroError(f"interval {text!r} is not between {limits} (write it like 500ms or 2s)")
    return milliseconds


def choose(every_ms: int, extension_version: str) -> Schedule:
    """How pg_cron of that version ticks at that interval: itself, or by a procedure that it starts each minute."""
    version = tuple(int(part) for part in re.findall(r"\d+", extension_version)[:2])
    if version >= (1, 5) and every_ms % 1000 == 0:
        seconds = every_ms // 1000
        return Schedule(f"{seconds} second{'s' if seconds > 1 else ''}", "select public.maestro_tick()", seconds + 1)
    command = f"call maestro.run(every => interval '{every_ms} ms', for_ => interval '{RUN_SECONDS} s')"
    return Schedule(MINUTELY, command, 60)


def schedule(connection: psycopg.Connection[Any], every_ms: int) -> Schedule:
    """Have pg_cron tick this database every `every_ms`; replaces an earlier schedule of the same database.

    Also keeps pg_cron's own log of these jobs to a day. Raises MaestroError if pg_cron is absent or not allowed.
    """
    database = connection.info.dbname
    if connection.execute("select to_regprocedure('public.maestro_tick(boolean, bigint)')").fetchone() == (None,):
        raise MaestroError(f"Maestro is not installed in database {database}; install it first (maestro install)")
    with _cron(connection) as cron:
        try:
            cron.execute("create extension if not exists pg_cron")
            row = cron.execute("select extversion from pg_extension where extname = 'pg_cron'").fetchone()
            chosen = choose(every_ms, row[0] if row else "0")
            _set_job(cron, _tick_job(database), chosen.schedule, chosen.command, database)
            if chosen.schedule == MINUTELY:
                _set_job(cron, _start_job(database), "@reboot", _rest_of_minute(every_ms), database)
            else:
                _drop_job(cron, _start_job(database))
            _set_job(
                cron, "maestro_cron_history", "17 * * * *",
                "delete from cron.job_run_details d using cron.job j where j.jobid = d.jobid"
                " and j.jobname like 'maestro\\_%' and d.start_time < now() - interval '24 hours'",
                cron.info.dbname,
            )  # fmt: skip
        except psycopg.Error as error:
            raise from_database(error) from error
    return chosen


def unschedule(connection: psycopg.Connection[Any]) -> bool:
    """Stop pg_cron from ticking this database, and the run of this minute. Returns whether there was a schedule."""
    database = connection.info.dbname
    with _cron(connection) as cron:
        if cron.execute("select to_regclass('cron.job')").fetchone() == (None,):
            return False
        jobs = [_tick_job(database), _start_job(database)]
        others = cron.execute(
            "select count(*) from cron.job where jobname like 'maestro\\_tick@%%' and jobname <> %s", jobs[:1]
        ).fetchone()
        if others == (0,):
            jobs.append("maestro_cron_history")
        gone = cron.execute("select cron.unschedule(jobid) from cron.job where jobname = any(%s)", [jobs]).fetchall()
        cron.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity"
            " where datname = %s and query ilike 'call maestro.run(%%'"
            "   and (backend_type = 'pg_cron' or application_name like 'pg_cron%%')",
            [database],
        )
    return bool(gone)


def _tick_job(database: str) -> str:
    return f"maestro_tick@{database}"


def _start_job(database: str) -> str:
    """Ticks from the moment the server starts or a standby takes over; else the farm waits for the next minute."""
    return f"maestro_start@{database}"


def _rest_of_minute(every_ms: int) -> str:
    rest = f"date_trunc('minute', clock_timestamp()) + interval '{RUN_SECONDS} s' - clock_timestamp()"
    return f"call maestro.run(every => interval '{every_ms} ms', for_ => {rest})"


def _drop_job(cron: psycopg.Connection[Any], name: str) -> None:
    cron.execute("select cron.unschedule(jobid) from cron.job where jobname = %s", [name])


def _set_job(cron: psycopg.Connection[Any], name: str, when: str, command: str, database: str) -> None:
    _drop_job(cron, name)
    cron.execute("select cron.schedule_in_database(%s, %s, %s, %s)", [name, when, command, database])


def _cron(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A connection to the database where pg_cron lives."""
    row = connection.execute("select current_setting('cron.database_name', true)").fetchone()
    if not row or not row[0]:
        raise MaestroError(
            "pg_cron is not loaded on this server: add it to shared_preload_libraries and restart,"
            " or tick from outside (maestro tick --every 500ms)"
        )
    info = connection.info
    # Not info.dsn alone: it leaves the password out.
    target = make_conninfo(info.dsn, dbname=row[0], **({"password": info.password} if info.password else {}))
    try:
        return psycopg.connect(target, autocommit=True, application_name="maestro")
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[-1]
        raise MaestroError(f"cannot connect to pg_cron's database {row[0]}: {reason}") from None
