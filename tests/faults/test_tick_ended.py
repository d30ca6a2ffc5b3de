"""The session that ticks is ended at random moments: the whole tick is committed, or none of it."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import psycopg
import pytest

from tests.db.farm import accounting, add_host, add_job, call, completion, one

Db = psycopg.Connection[Any]


def _tick(connection: Db, ended: list[str]) -> None:
    try:
        connection.execute("select public.maestro_tick()")
        ended.append("committed")
    except psycopg.OperationalError:
        ended.append("ended")


@pytest.mark.parametrize("moments", [60, pytest.param(600, marks=pytest.mark.soak)])
def test_a_tick_whose_session_is_ended_is_committed_whole_or_not_at_all(db: Db, dsn: str, moments: int) -> None:
    random = Random(moments)
    db.execute("update maestro.setting set value = '86400' where name = 'host_down_seconds'")  # nobody reports here
    for number in range(12):
        add_host(db, f"host{number}", cores=8)
    for number in range(moments // 12):  # more work than so many ticks can book
        add_job(db, f"job{number}", {"render": 1500}, retries=100)
    seen = {"committed": 0, "ended": 0}
    seconds = _measured(db, dsn)
    ticks = 1
    for moment in range(moments):
        procs, inbox = _counts(db)
        if not inbox:
            reports = [completion(db, *row) for row in db.execute("select pk_proc, pk_frame from proc").fetchall()]
            call(db, "report_completion", reports)
            db.execute("delete from maestro.launch")
            inbox = procs
        ended: list[str] = []
        with psycopg.connect(dsn, autocommit=True) as connection:
            thread = threading.Thread(target=_tick, args=(connection, ended))
            thread.start()
            threading.Event().wait(random.uniform(0, seconds))
            db.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
            thread.join()

        rows = db.execute("select committed from maestro.tick order by tick_id offset %s", [ticks]).fetchall()
        ticks += len(rows)
        seen["committed" if rows else "ended"] += 1
        # How long a tick takes depends on what else the machine does: aim at its end.
        seconds *= 0.9 if rows else 1.1
        assert ended == ["ended"] or rows, "the caller was told of a tick that is not there"
        # A committed tick has drained all that had ended and booked anew; of any other there is no trace.
        assert _counts(db) == ((rows[0][0], 0) if rows else (procs, inbox))
        assert one(db, "select count(*) from maestro.launch") == (rows[0][0] if rows else 0)
        assert one(db, "select count(*) from frame where str_state = 'RUNNING'") == _counts(db)[0]
        if moment % 10 == 0:
            assert accounting(db) == []
    assert min(seen.values()) >= moments // 10, seen
    assert accounting(db) == []


def _measured(db: Db, dsn: str) -> float:
    """Seconds that the first tick of a session takes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        began = time.monotonic()
        connection.execute("select public.maestro_tick()")
        return time.monotonic() - began


def _counts(db: Db) -> tuple[int, int]:
    """Procs, and completions in the inbox."""
    return one(db, "select count(*) from proc"), one(db, "select count(*) from maestro.completion")
