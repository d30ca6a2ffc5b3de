"""A session that plans for long does not grow (P91)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tests.db.farm import accounting, add_host, add_job, call, completion, one, tick

Db = psycopg.Connection[Any]
GROWTH_KIB = 4096  # 5 % of the 80 MiB that a session takes which plans a full farm


def _kib(pid: int) -> int:
    """Memory of a backend that is its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")))


@pytest.mark.soak
def test_after_ten_thousand_ticks_a_session_is_as_small_as_after_two_hundred(db: Db, dsn: str) -> None:
    random = Random(1)
    db.execute("update maestro.setting set value = '86400' where name = 'host_down_seconds'")
    for number in range(40):
        add_host(db, f"host{number}", cores=8)
    for number in range(10):
        add_job(db, f"job{number}", {"render": 4000, "comp": 1000})
    with psycopg.connect(dsn, autocommit=True) as planning:
        sizes = {}
        for number in range(1, 10_001):
            if number <= 200:  # these ticks are quicker than a real farm's: nothing rare is left for later ones
                db.execute("update maestro.sweep_clock set last_at = '-infinity'")
            tick(planning)
            if number in (200, 10_000):
                sizes[number] = _kib(planning.info.backend_pid)
            db.execute("delete from maestro.launch")
            procs = db.execute(
                "select pk_proc, pk_frame, str_name from proc join host using (pk_host) where random() < 0.02"
            ).fetchall()
            if procs:
                call(db, "report_completion", [
                    completion(db, proc, frame, random.choice([0] * 19 + [1]), host=host)
                    for proc, frame, host in procs
                ])  # fmt: skip
    assert one(db, "select count(*) from frame where str_state = 'SUCCEEDED'") > 10_000
    assert sizes[10_000] - sizes[200] <= GROWTH_KIB, sizes
    assert accounting(db) == []
