"""The books: idle + reserved = total on every host, and every counter says what the rows behind it say."""

from __future__ import annotations

import random
import threading
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.db.farm import (
    GIB,
    Db,
    accounting,
    add_host,
    add_job,
    book,
    call,
    column,
    complete,
    completion,
    frames_of,
    host_report,
    one,
    run,
    running,
    tick,
)


@pytest.mark.parametrize(
    ("table", "counter", "what"),
    [
        ("host", "int_cores_idle", "cores"), ("host", "int_mem_idle", "mem"), ("host", "int_gpus_idle", "gpus"),
        ("host", "int_gpu_mem_idle", "gpu_mem"), ("subscription", "int_cores", "cores"),
        ("subscription", "int_gpus", "gpus"), ("job_resource", "int_cores", "cores"),
        ("job_resource", "int_local_gpus", "local_gpus"), ("layer_resource", "int_gpus", "gpus"),
        ("folder_resource", "int_cores", "cores"), ("point", "int_cores", "cores"),
        ("layer_stat", "int_total_count", "total"), ("layer_stat", "int_running_count", "running"),
        ("job_stat", "int_dead_count", "dead"),
    ],
)
def test_every_counter_that_lies_is_named(db: Db, table: str, counter: str, what: str) -> None:
    frame = frames_of(db, add_job(db, "j", {"a": 2}))[0]
    book(db, frame, add_host(db, "h", gpus=1))
    assert accounting(db) == []
    db.execute(f"update {table} set {counter} = {counter} + 7")  # type: ignore[arg-type]
    ((found, _, name, expected, actual),) = accounting(db)
    assert (found, name, actual - expected) == (table, what, 7)


def test_what_a_proc_holds_at_its_end_comes_back_not_what_was_booked(db: Db) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, pk_host, mem=GIB)
    db.execute("update proc set int_mem_reserved = 5000000")
    assert accounting(db) == []
    complete(db, proc, frame)
    assert one(db, "select int_mem_idle = int_mem from host")
    assert accounting(db) == []


def test_a_local_proc_is_charged_to_its_host_and_the_jobs_local_columns(db: Db) -> None:
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 1})
    frame = frames_of(db, job)[0]
    proc = book(db, frame, pk_host)
    db.execute("update proc set b_local = true")
    for table in ("subscription", "folder_resource", "point", "job_resource"):
        db.execute(f"update {table} set int_cores = 0")  # type: ignore[arg-type]
    db.execute("update job_resource set int_local_cores = 100")
    db.execute(
        "insert into host_local (pk_host_local, pk_job, pk_host, int_mem_max, int_mem_idle, int_cores_max,"
        " int_cores_idle, str_type) values ('l', %s, %s, %s, 0, 100, 0, 'JOB')", [job, pk_host, GIB],
    )
    assert accounting(db) == []
    complete(db, proc, frame)
    assert db.execute("select int_cores_idle, int_mem_idle from host_local").fetchone() == (100, GIB)
    assert accounting(db) == []


class Chaos:
    """Whatever may happen to a small farm, in any order. Every move leaves the books right."""

    def __init__(self, db: Db, seed: int) -> None:
        self.db = db
        self.random = random.Random(seed)
        self.seen: list[tuple[str, str]] = []
        self.clock = 0

    def now(self) -> datetime:
        moment: datetime = one(self.db, "select now()")
        return moment + timedelta(seconds=self.clock)

    def any_run(self) -> tuple[str, str, str] | None:
        rows = self.db.execute("select pk_proc, pk_frame, str_name from proc join host using (pk_host)").fetchall()
        return self.random.choice(rows) if rows else None

    def books(self) -> None:
        tick(self.db)
        self.seen += self.db.execute("select pk_proc, pk_frame from proc").fetchall()

    def launchers_take_it(self) -> None:
        self.db.execute("delete from maestro.launch")

    def reports(self) -> None:
        runs: dict[str, list[Any]] = {}
        for proc, frame, host in self.db.execute(
            "select pk_proc, pk_frame, str_name from proc join host using (pk_host)"
        ).fetchall():
            runs.setdefault(host, []).append(run(proc, frame, rss=self.random.randrange(6 * GIB)))
        for host in column(self.db, "select str_name from host"):
            if self.random.random() < 0.8:
                report = host_report(host, runs.get(host, []), total_mem=str(32 * GIB))
                call(self.db, "report_status", report, self.now())

    def shrinks(self) -> None:
        self.db.execute(
            "update proc set int_mem_reserved = greatest(262144, int_mem_reserved / 2) where pk_proc ="
            " (select pk_proc from proc order by pk_proc limit 1)"
        )

    def completes(self) -> None:
        if found := self.any_run():
            report = completion(
                self.db, found[0], found[1], self.random.choice([0, 0, 1, 33, 137, 256, 286]), host=found[2],
                max_rss=self.random.randrange(6 * GIB),
            )
            for _ in range(self.random.choice([1, 1, 2, 3])):
                call(self.db, "report_completion", report)

    def drains(self) -> None:
        assert call(self.db, "drain")["errors"] == []

    def repeats_itself(self) -> None:
        if self.seen:
            proc, frame = self.random.choice(self.seen)
            host = self.random.choice(column(self.db, "select str_name from host"))
            call(self.db, "report_completion", completion(self.db, proc, frame, host=host))
            call(self.db, "report_status", host_report(host, [run(proc, frame, rss=7 * GIB)], total_mem=str(32 * GIB)))

    def is_refused(self) -> None:
        if found := self.any_run():
            call(self.db, "unbook", [found[0]], 299)

    def loses_a_host(self) -> None:
        self.clock += 400
        host = self.random.choice(column(self.db, "select str_name from host"))
        call(self.db, "report_status", host_report(host, total_mem=str(32 * GIB)), self.now())
        assert call(self.db, "sweep", self.now())["errors"] == []
        for name in column(self.db, "select str_name from host"):
            call(self.db, "report_startup", host_report(name, total_mem=str(32 * GIB)))

    def operators_retry(self) -> None:
        call(self.db, "retry_frames", self.random.choice(["j0", "j1"]), "a", [self.random.randint(1, 20)])

    def operators_eat(self) -> None:
        call(self.db, "eat_frames", self.random.choice(["j0", "j1"]), "a", [self.random.randint(1, 20)])

    def operators_kill(self) -> None:
        if self.random.random() < 0.2 and one(self.db, "select str_state from job where str_name = 'j1'") == "PENDING":
            call(self.db, "kill_job", "j1")

    def move(self) -> str:
        moves = [
            self.books, self.launchers_take_it, self.reports, self.shrinks, self.completes, self.drains,
            self.repeats_itself, self.is_refused, self.loses_a_host, self.operators_retry, self.operators_eat,
            self.operators_kill,
        ]
        chosen = self.random.choice(moves)
        chosen()
        return chosen.__name__


def small_farm(db: Db) -> None:
    for name in ("h0", "h1", "h2"):
        add_host(db, name, cores=16, mem_gib=32)
    for name in ("j0", "j1"):
        add_job(db, name, {"a": 20, "b": 20}, retries=3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_books_are_right_after_every_move_in_any_order(db: Db, seed: int) -> None:
    """Book, grow, shrink, complete, complete twice, report after completion, kill, lose the host."""
    small_farm(db)
    chaos = Chaos(db, seed)
    history = []
    for _ in range(60):
        history.append(chaos.move())
        assert accounting(db) == [], history
    assert one(db, "select count(*) from proc where pk_frame is null") == 0
    assert one(db, "select count(*) from host where int_mem_idle < 0 or int_cores_idle < 0") == 0


def test_the_books_are_right_when_everything_happens_at_once_and_nothing_deadlocks(db: Db, dsn: str) -> None:
    """P16: ticks, reports, completions, verbs and unbookings on connections of their own."""
    small_farm(db)
    failed: list[BaseException] = []

    def work(seed: int, moves: tuple[str, ...], count: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as mine:
                chaos = Chaos(mine, seed)
                for _ in range(count):
                    getattr(chaos, chaos.random.choice(moves))()
        except BaseException as error:
            failed.append(error)

    def ticks(count: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as mine:
                for _ in range(count):
                    answer = one(mine, "select public.maestro_tick()")
                    assert answer["status"] in ("planned", "locked"), answer
                    assert answer.get("errors", []) == [], answer
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=ticks, args=(30,)),
        threading.Thread(target=work, args=(1, ("reports", "completes", "repeats_itself"), 40)),
        threading.Thread(target=work, args=(2, ("reports", "completes", "is_refused"), 40)),
        threading.Thread(target=work, args=(3, ("operators_retry", "operators_eat", "launchers_take_it"), 40)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    tick(db)
    assert accounting(db) == []
    assert one(db, "select deadlocks from pg_stat_database where datname = current_database()") == 0


def test_the_host_is_whole_again_at_once_after_its_last_frame(db: Db) -> None:
    """The memory that did not come back, in small: no sweep is needed for idle to equal the total."""
    call(db, "report_startup", host_report("h"))
    job = add_job(db, "j", {"a": 1})
    tick(db)
    ((proc, frame),) = running(db, job)
    call(db, "report_status", host_report("h", [run(proc, frame, rss=2 * GIB)]))
    call(db, "report_completion", completion(db, proc, frame))
    call(db, "report_status", host_report("h", [run(proc, frame, rss=3 * GIB)]))
    call(db, "drain")
    call(db, "report_status", host_report("h", [run(proc, frame, rss=4 * GIB)]))
    assert db.execute("select int_mem_idle - int_mem, int_cores_idle - int_cores from host").fetchone() == (0, 0)
    assert accounting(db) == []
