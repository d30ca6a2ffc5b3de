"""Notifications are few and cheap, and none that is lost, late or unread stops the farm."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from random import Random
from typing import Any

import psycopg
import pytest

from tests.db import farm as rows
from tests.db.farm import accounting, add_host, add_job, call, completion, host_report, one, run
from tests.launcher.farm import Farm, process

Db = psycopg.Connection[Any]
BREAK = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where datname = current_database() and application_name = 'maestro launcher listen'
"""


@pytest.mark.parametrize("points", [20, pytest.param(1000, marks=pytest.mark.soak)])
async def test_a_booking_around_a_reconnect_is_claimed_within_the_polling_period(farm: Farm, points: int) -> None:
    """P83: nobody notifies again, so polling must find it."""
    await farm.start(hosts=4)
    farm.set("host_down_seconds", 86400)  # nobody reports here
    random = Random(points)
    async with farm.launcher(poll_s=1.0, launch_deadline_s=5.0) as daemon:
        await farm.until(lambda: daemon.state.health.get("listen"))
        for point in range(points):
            farm.submit(1, name=f"job{point}")
            farm.db.execute(BREAK)
            await asyncio.sleep(random.uniform(0, 0.4))
            assert farm.tick()["committed"] == 1
            began = time.monotonic()
            await farm.until(lambda: farm.one("select count(*) from maestro.launch where state = 'ready'") == 0)
            # Generous: the machine may be busy; without polling it would be never.
            assert time.monotonic() - began < 5
            await farm.fake.until(lambda wanted=point + 1: len(farm.fake.launches) == wanted)  # type: ignore[misc]
            await farm.fake.finish(*farm.fake.launches[-1][:2])
            farm.one("select maestro.report_completion(%s::jsonb)", json.dumps({
                "host": {"name": farm.fake.launches[-1][0]}, "exit_status": 0, "exit_signal": 0,
                "frame": {"resource_id": farm.fake.launches[-1][2], "frame_id": farm.fake.launches[-1][1]},
            }))  # fmt: skip
    farm.check()


def test_a_tick_that_books_notifies_once_and_reports_and_completions_never(db: Db, dsn: str) -> None:
    """P84: each notifying commit takes a lock of the whole server."""
    for number in range(4):
        add_host(db, f"h{number}", cores=16)
    add_job(db, "j", {"a": 40, "b": 20})
    db.execute("update maestro.setting set value = '0' where name = 'layer_host_max_frac'")
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("listen maestro_launch")
        listener.execute("listen maestro_order")

        def heard() -> list[tuple[str, str]]:
            # The listener's own round trip comes after what was committed before it.
            listener.execute("select 1")
            return [(notice.channel, notice.payload) for notice in listener.notifies(timeout=0)]

        booked = rows.tick(db)
        assert booked["committed"] == 60
        assert heard() == [("maestro_launch", str(booked["tick_id"]))]
        procs = db.execute("select pk_proc, pk_frame, str_name from proc join host using (pk_host)").fetchall()
        for name in ("h0", "h1", "h2", "h3"):
            mine = [run(proc, frame, rss=1024) for proc, frame, host in procs if host == name]
            call(db, "report_status", host_report(name, mine))
        call(db, "report_completion", [completion(db, proc, frame) for proc, frame, _ in procs])
        assert heard() == []
        assert rows.tick(db)["committed"] == 0
        assert heard() == []
    assert accounting(db) == []


async def test_a_stopped_launcher_fills_no_queue_holds_back_no_vacuum_and_fails_no_tick(farm: Farm) -> None:
    """P85, P87, P95: the process is there and does nothing."""
    await farm.start(hosts=2)
    async with process(farm, log_level="error") as child:
        await farm.until(
            lambda: farm.one("select count(*) from maestro.launcher where health ->> 'listen' = 'true'") == 1
        )
        child.send_signal(signal.SIGSTOP)
        try:
            for number in range(2000):
                farm.db.execute("select pg_notify('maestro_launch', %s)", [str(number)])
            assert farm.one("select pg_notification_queue_usage() < 0.01")
            farm.book(4)
            assert farm.one(
                "select count(*) from pg_stat_activity"
                " where application_name like 'maestro launcher%%' and backend_xmin is not null"
            ) == 0  # fmt: skip
            # Another launcher does the work meanwhile.
            async with farm.launcher():
                await farm.until(lambda: farm.open_launches() == 0)
        finally:
            child.send_signal(signal.SIGCONT)
        # And it goes on where it can.
        farm.submit(3, name="later")
        farm.tick()
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(set(farm.fake.launches)) == len(farm.fake.launches) == 7
    farm.check()


def test_a_caller_that_dies_inside_its_transaction_keeps_others_from_planning_for_seconds_only(
    db: Db, dsn: str
) -> None:
    """P81: it ticked inside a transaction and is heard of no more."""
    add_host(db, "h", cores=2)
    add_job(db, "j", {"a": 2})
    with psycopg.connect(dsn) as silent:
        silent.execute("select public.maestro_tick()")
        began = time.monotonic()
        while (answer := one(db, "select public.maestro_tick()"))["status"] == "locked":
            assert time.monotonic() - began < 15
            time.sleep(0.05)
        assert time.monotonic() - began > 1, "a lock that nobody held"
        with pytest.raises(psycopg.Error, match="idle-in-transaction"):
            silent.execute("select 1")
        silent.close()
    assert (answer["status"], answer["committed"]) == ("planned", 2)
    assert accounting(db) == []
