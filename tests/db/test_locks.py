"""What runs beside the tick meets it on the same rows: reports, verbs, launchers and submissions never deadlock."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.db.farm import (
    GIB,
    Db,
    accounting,
    add_host,
    add_job,
    call,
    claim,
    column,
    completion,
    host_report,
    layer_of,
    one,
    run,
    running,
    tick,
    uncap,
)

DEADLINE_S = 120.0


@contextmanager
def transaction(dsn: str) -> Iterator[Db]:
    """A connection of its own whose transaction stays open until the block ends."""
    with psycopg.connect(dsn) as other:
        yield other


def impatient(db: Db) -> None:
    """Who waits for a lock of somebody else's fails."""
    db.execute("set lock_timeout = '5s'")


def wait_until(db: Db, condition: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not one(db, f"select {condition}"):
        assert time.monotonic() < until, condition
        time.sleep(0.02)


def test_a_report_orders_nothing_while_a_verb_orders_kills_and_does_not_wait_for_it(db: Db, dsn: str) -> None:
    add_host(db, "h")
    job = add_job(db, "j", {"a": 2})
    tick(db)
    db.execute("delete from maestro.launch")
    booked = running(db, job)
    call(db, "retry_frames", "j", "a")
    db.execute("delete from maestro.host_order")  # a launcher has tried, and given up
    impatient(db)
    with transaction(dsn) as other:
        assert call(other, "retry_frames", "j", "a")["killed"] == 2
        assert call(db, "report_status", host_report("h", [run(*each) for each in booked])) == {"hosts": 1, "kills": 0}
    assert one(db, "select count(*) from maestro.host_order") == 2
    db.execute("delete from maestro.host_order")
    assert call(db, "report_status", host_report("h", [run(*each) for each in booked]))["kills"] == 2
    assert accounting(db) == []


def test_a_report_does_not_wait_for_a_tick_that_drains_its_leaking_host(db: Db, dsn: str) -> None:
    add_host(db, "h")
    db.execute("update maestro.setting set value = '1024' where name = 'host_leak_mb'")
    db.execute("insert into maestro.host_leak select pk_host, 3, now() - interval '1 hour', 5000000 from host")
    impatient(db)
    with transaction(dsn) as other:
        other.execute("select maestro.drain_leaks(now())")
        call(db, "report_status", host_report("h", free_mem=str(GIB)))
    assert one(db, "select count(*) from maestro.host_drain") == 1
    call(db, "report_status", host_report("h", free_mem=str(GIB)))
    assert one(db, "select count(*) from maestro.host_leak") == 0


def test_a_usage_report_and_the_repair_of_a_limit_take_their_rows_in_one_order(db: Db, dsn: str) -> None:
    job = add_job(db, "j", {"a": 1})
    db.execute("insert into limit_record (pk_limit_record, str_name, int_max_value) values ('l', 'licence', 9)")
    db.execute("insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values ('ll', %s, 'l')",
               [layer_of(db, job, "a")])  # fmt: skip
    db.execute("update maestro.setting set value = '0' where name = 'limit_min_report_interval_seconds'")
    report = {"limit": "licence", "hosts": [{"host": "h"}]}
    call(db, "report_limit_usage", report)
    db.execute("update limit_usage set int_settled_usage = 77")
    with transaction(dsn) as ticking, psycopg.connect(dsn, autocommit=True) as reporting:
        assert call(ticking, "repair_drift", 0, one(db, "select now()")) == 1
        waiting = threading.Thread(target=call, args=(reporting, "report_limit_usage", report))
        waiting.start()
        wait_until(db, "exists (select from pg_stat_activity where wait_event_type = 'Lock')")
        ticking.execute("select from limit_record for no key update")  # as the tick's commit does
        ticking.commit()
        waiting.join()
    assert one(db, "select int_settled_usage from limit_usage") == 1


class Caller:
    """One connection's share of a busy farm: it does what launchers, RQDs, operators or submitters do, seeded."""

    def __init__(self, db: Db, seed: int) -> None:
        self.db = db
        self.random = random.Random(seed)
        self.launcher: int = call(db, "register_launcher", f"machine{seed}", seed, "test")

    def some(self, statement: str, most: int) -> list[Any]:
        rows = self.db.execute(statement).fetchall()  # type: ignore[arg-type]
        return self.random.sample(rows, min(most, len(rows)))

    def ticks(self) -> None:
        answer = one(self.db, "select public.maestro_tick()")
        assert answer["status"] in ("planned", "locked"), answer
        assert answer.get("errors", []) == [], answer

    def report(self) -> None:
        """Several hosts in one call, as launchers hand reports in; now and then a run that should not be."""
        runs: dict[str, list[Any]] = {}
        for proc, frame, host in self.some(
            "select pk_proc, pk_frame, str_name from proc join host using (pk_host)", 200
        ):
            if self.random.random() < 0.1:
                proc = f"unknown {self.random.randrange(9)}"
            rss = self.random.randrange(4 * GIB)
            swap = str(self.random.randrange(GIB))
            runs.setdefault(host, []).append(run(proc, frame, rss=rss, age_seconds=999, used_swap_memory=swap))
        call(self.db, "report_status", [
            host_report(
                host, runs.get(host, []), total_mem=str(32 * GIB),
                free_mem=str(self.random.choice([1, 20]) * GIB),
                total_swap=str(8 * GIB), free_swap=str(self.random.choice([1, 8]) * GIB),
                nimby_locked=self.random.random() < 0.05,
            )
            for (host,) in self.some("select str_name from host", 6)
        ])  # fmt: skip

    def boot(self) -> None:
        for (host,) in self.some("select str_name from host", 1):
            call(self.db, "report_startup", host_report(host, total_mem=str(32 * GIB)))

    def complete(self) -> None:
        found = self.some("select pk_proc, pk_frame, str_name from proc join host using (pk_host)", 20)
        if found:
            call(self.db, "report_completion", [
                completion(self.db, proc, frame, self.random.choice([0, 0, 0, 1, 33, 286]), host=host,
                           max_rss=self.random.randrange(4 * GIB))
                for proc, frame, host in found
            ])  # fmt: skip

    def launch(self) -> None:
        claimed = claim(self.db, self.launcher, self.random.choice([5, 50]))
        if claimed:
            call(self.db, "finish_launches", self.launcher, [
                {
                    "launch_id": each["launch_id"], "error": None,
                    "outcome": self.random.choice(["launched", "launched", "launched", "refused", "retry"]),
                }
                for each in claimed
            ])  # fmt: skip

    def obey(self) -> None:
        orders = call(self.db, "claim_orders", self.launcher, 50)
        if orders:
            outcomes = ["done", "failed", "retry"]
            call(self.db, "finish_orders", self.launcher, [
                {"order_id": each["order_id"], "outcome": self.random.choice(outcomes), "error": None}
                for each in orders
            ])  # fmt: skip

    def verify(self) -> None:
        found = self.some("select pk_proc from proc", 20)
        if found:
            call(self.db, "finish_unconfirmed", [
                {"pk_proc": proc, "outcome": self.random.choice(["running", "running", "lost"])} for (proc,) in found
            ])  # fmt: skip

    def meter(self) -> None:
        holders = [{"host": host} for (host,) in self.some("select str_name from host", 3)]
        call(self.db, "report_limit_usage", [{"limit": name, "hosts": holders} for name in ("one", "two")])

    def steer(self) -> None:
        """An operator's verb; that it comes too late for a job or host is the only error allowed."""
        (job,) = self.random.choice(self.db.execute("select str_name from job").fetchall())
        (host,) = self.random.choice(self.db.execute("select str_name from host").fetchall())
        numbers = [self.random.randint(1, 8) for _ in range(4)]
        verb, *given = self.random.choice([
            ("retry_frames", job, "a", numbers), ("retry_frames", job), ("eat_frames", job, "b", numbers),
            ("mark_done", job, "a", numbers[:1]), ("pause_job", job), ("resume_job", job), ("resume_job", job),
            ("set_job_priority", job, self.random.randint(0, 200)), ("set_job_max_cores", job, 500),
            ("lock_host", host), ("unlock_host", host), ("unlock_host", host), ("drain_host", host),
            ("undrain_host", host), ("undrain_host", host),
            *([("kill_job", job)] if self.random.random() < 0.1 else []),
        ])  # fmt: skip
        try:
            call(self.db, verb, *given)
        except psycopg.Error as error:
            if error.sqlstate not in ("QM002", "QM003"):
                raise

    def unsettle(self) -> None:
        """A counter is wrong, as if a writer had failed: ticks repair it."""
        with self.db.transaction():
            self.db.execute("set local session_replication_role = replica")
            self.db.execute("update limit_usage set int_settled_usage = int_settled_usage + 1")

    def submit(self) -> None:
        name = f"more{self.random.getrandbits(40)}"
        layers = [{"name": each, "cmd": "true", "range": "1-8", "cores": 1} for each in ("first", "then")]
        call(self.db, "submit_job", {
            "show": "demo", "shot": "s1", "user": "u", "uid": 1000,
            "jobs": [{"name": name, "layers": layers,
                      "depends": [{"type": "LAYER_ON_LAYER", "deplayer": "then", "onlayer": "first"}]}],
        })  # fmt: skip


def at_once(dsn: str, parts: list[tuple[tuple[str, ...], int]], seed: int) -> list[BaseException]:
    """Run each part (moves, how often) on a connection of its own; what failed."""
    failed: list[BaseException] = []

    def work(number: int, moves: tuple[str, ...], count: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as mine:
                caller = Caller(mine, seed * 1000 + number)
                for _ in range(count):
                    if failed:
                        return
                    move: Callable[[], None] = getattr(caller, caller.random.choice(moves))
                    move()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number, *part)) for number, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def crowded_farm(db: Db) -> None:
    uncap(db)
    for number in range(8):
        add_host(db, f"h{number}", cores=8, mem_gib=32)
    for number in range(6):
        job = add_job(db, f"j{number}", {"a": 30, "b": 30}, retries=3)
        for name in ("one", "two"):
            db.execute(
                "insert into limit_record (pk_limit_record, str_name, int_max_value, str_type)"
                " values (%s, %s, 40, case %s when 'two' then 'HOST' else 'FRAME' end) on conflict do nothing",
                [name, name, name],
            )
            db.execute(
                "insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values (%s, %s, %s)",
                [f"{number} {name}", layer_of(db, job, "a"), name],
            )
    for name, value in (
        ("limit_min_report_interval_seconds", 0), ("host_leak_mb", 2000), ("frame_verification_grace_seconds", 0),
        ("oom_max_safe_used_physical_memory_threshold", 0.5),
    ):  # fmt: skip
        db.execute("update maestro.setting set value = %s where name = %s", [str(value), name])


def deadlocks(db: Db) -> int:
    db.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return int(one(db, "select deadlocks from pg_stat_database where datname = current_database()"))


EVERYTHING: list[tuple[tuple[str, ...], int]] = [
    (("ticks",), 60), (("ticks", "unsettle"), 60),
    (("report", "complete"), 90), (("report", "complete", "boot"), 90), (("report",), 60),
    (("launch", "obey", "verify"), 90), (("launch", "obey", "verify"), 90),
    (("steer",), 90), (("steer", "meter"), 90), (("meter", "submit"), 40),
]  # fmt: skip


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_ticks_reports_launchers_operators_and_submissions_never_deadlock(db: Db, dsn: str, seed: int) -> None:
    crowded_farm(db)
    assert at_once(dsn, EVERYTHING, seed) == []
    tick(db)
    assert accounting(db) == []
    assert deadlocks(db) == 0


def test_fifty_clients_submit_to_one_show_while_it_is_ticked_steered_and_completed(db: Db, dsn: str) -> None:
    """P16: no call fails, no deadlock is counted, and every job is there once."""
    crowded_farm(db)
    before = one(db, "select count(*) from job")
    parts: list[tuple[tuple[str, ...], int]] = [(("submit",), 2)] * 50
    parts += [(("ticks",), 30), (("report", "complete"), 30), (("launch", "obey"), 30), (("steer",), 30)]
    assert at_once(dsn, parts, seed=50) == []
    assert one(db, "select count(*) from job") == before + 100
    assert one(db, "select int_job_insert_count from show_stats where pk_show = (select pk_show from show"
                   " where str_name = 'demo')") == 100  # fmt: skip
    assert column(db, "select distinct count(*) from frame join job using (pk_job) where job.str_name like '%%more%%'"
                      " group by pk_job") == [16]  # fmt: skip
    tick(db)
    assert accounting(db) == []
    assert deadlocks(db) == 0
