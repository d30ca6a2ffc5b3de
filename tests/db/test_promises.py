"""Promises that need the whole of it: long runs, many hosts, errors at every step, and a farm nobody looks after."""

from __future__ import annotations

import threading
from datetime import timedelta
from random import Random
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
    claim,
    column,
    complete,
    completion,
    frames_of,
    host_report,
    one,
    run,
    state,
    tick,
    uncap,
)


def test_a_frame_of_half_an_hour_is_launched_once_and_never_killed(db: Db) -> None:
    """P06: ticks, reports and sweeps go on, and its first launcher ends before it could tell."""
    add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    tick(db)
    first = call(db, "register_launcher", "machine", 1, "test")
    (launch,) = claim(db, first, 10)
    call(db, "leave_launcher", first)
    second = call(db, "register_launcher", "machine", 2, "test")
    (again,) = claim(db, second, 10)
    assert (again["pk_proc"], again["attempts"]) == (launch["pk_proc"], 2)  # it asks the host before it sends
    call(db, "finish_launches", second, [{"launch_id": again["launch_id"], "outcome": "launched"}])
    start = one(db, "select now()")
    for seconds in range(0, 1800, 30):
        now = start + timedelta(seconds=seconds)
        db.execute("update maestro.launcher set heartbeat_at = %s", [now])
        call(db, "report_status", host_report("h", [run(again["pk_proc"], frame, rss=GIB)]), now)
        assert call(db, "sweep", now)["swept"] == 0
        tick(db)
    assert state(db, frame) == "RUNNING"
    for table in ("maestro.host_order", "maestro.launch", "maestro.fault"):
        assert one(db, f"select count(*) from {table}") == 0
    complete(db, again["pk_proc"], frame, run_time=1800)
    assert state(db, frame) == "SUCCEEDED"
    assert accounting(db) == []


def test_five_hundred_unreachable_hosts_do_not_delay_a_host_that_can_be_reached(db: Db) -> None:
    """P05: what a restarted RQD forgot is freed by the very sweep that is due, whoever else is silent."""
    for number in range(500):
        add_host(db, f"silent{number:03d}", cores=1, mem_gib=4)
    alive = add_host(db, "alive", cores=4)
    frames = frames_of(db, add_job(db, "j", {"a": 504}))
    assert tick(db)["committed"] == 504
    db.execute("delete from maestro.launch")
    db.execute("update proc set ts_ping = now() - interval '1 hour' where pk_host <> %s", [alive])
    call(db, "report_startup", host_report("alive", num_procs=4))
    now = one(db, "select now()")
    call(db, "report_status", host_report("alive", num_procs=4), now + timedelta(seconds=16))
    call(db, "sweep", now + timedelta(seconds=18))
    assert one(db, "select count(*) from proc where pk_host = %s", alive) == 0
    assert {state(db, frame) for frame in frames} == {"WAITING"}  # and the silent ones' as well, in one sweep
    assert accounting(db) == []


STEPS = ["count_usage", "delete_procs", "adapt_layers", "leave_warm", "learn_memory", "settle"]


@pytest.mark.parametrize("step", STEPS)
def test_an_error_after_any_step_of_filing_leaves_usage_as_the_frames_say(db: Db, step: str) -> None:
    """P10: nothing is counted that is not done, and nothing twice when it is done at last."""
    host = add_host(db, "h")
    frames = frames_of(db, add_job(db, "j", {"a": 6}, retries=3))
    booked = [(book(db, frame, host), frame) for frame in frames]
    signature = one(db, "select oid::regprocedure::text from pg_proc where proname = %s", step)
    types, kind = db.execute(
        "select string_agg('$' || n, ', '), format_type(p.prorettype, null) from pg_proc p,"
        " generate_series(1, p.pronargs) n where p.oid = %s::regprocedure group by p.prorettype", [signature],
    ).fetchone() or ("", "")  # fmt: skip
    db.execute(f"alter function {signature} rename to step_kept")  # type: ignore[arg-type]
    arguments = signature[signature.index("(") :]
    db.execute("create table broken ()")
    db.execute(
        f"create function maestro.{step}{arguments} returns {kind} language plpgsql as $f$ begin"  # type: ignore[arg-type]
        f" perform maestro.step_kept({types}); if to_regclass('public.broken') is not null then"
        f" raise exception 'the disk of step % has a hole', '{step}'; end if;"
        f" return {'' if kind == 'void' else 'null'}; end $f$"
    )
    reports = [completion(db, proc, frame, status, max_rss=GIB) for (proc, frame), status in
               zip(booked, (0, 0, 1, 0, 0, 0), strict=True)]  # fmt: skip
    call(db, "report_completion", reports)
    answer = call(db, "drain")
    # Nothing is to be settled after the failed frame, so that step does not keep it from being filed.
    filed = 1 if step == "settle" else 0
    assert (answer["drained"], len(answer["errors"])) == (filed, 6 - filed)
    db.execute("drop table broken")
    db.execute(f"drop function maestro.{step}{arguments}")  # type: ignore[arg-type]
    db.execute(f"alter function maestro.step_kept{arguments} rename to {step}")  # type: ignore[arg-type]
    call(db, "report_completion", reports)
    assert call(db, "drain")["errors"] == []
    for table, key in (("layer_usage", "layer"), ("job_usage", "job")):
        assert db.execute(
            f"select int_frame_success_count, int_frame_fail_count, int_clock_time_success > 0 from {table}"  # type: ignore[arg-type]
        ).fetchone() == (5, 1, True), key
    assert db.execute("select int_frame_success_count, int_frame_fail_count from show_stats"
                      " where int_frame_success_count > 0").fetchall() == [(5, 1)]  # fmt: skip
    assert accounting(db) == []


def test_a_drain_request_that_meets_a_tick_leaves_nothing_on_the_host(db: Db, dsn: str) -> None:
    """P64: whichever comes first, no frame starts after the request until the boot report."""
    add_host(db, "h", cores=4)
    add_job(db, "j", {"a": 4})
    tries = 60
    for number in range(tries):
        start = threading.Barrier(2)

        def ticks(start: threading.Barrier = start) -> None:
            with psycopg.connect(dsn, autocommit=True) as own:
                start.wait()
                own.execute("select maestro_tick()")

        ticking = threading.Thread(target=ticks)
        ticking.start()
        start.wait()
        call(db, "drain_host", "h", "test")
        ticking.join()
        assert one(db, "select count(*) from proc") == 0, number
        tick(db)
        assert one(db, "select count(*) from proc") == 0, number
        assert one(db, "select maestro.sweep_hosts(now())") == 0
        call(db, "report_startup", host_report("h", num_procs=4))
        assert one(db, "select str_lock_state from host") == "OPEN"
    assert accounting(db) == []


def test_planning_statements_do_not_grow_with_hosts_and_layers(db: Db) -> None:
    """P66."""
    db.execute("set track_functions = 'all'")
    calls: list[int] = []
    for count in (5, 40, 160):
        for number in range(count):
            add_host(db, f"h{count}x{number}", cores=1)
        add_job(db, f"j{count}", {f"layer{number}": 3 for number in range(count // 5)})
        tick(db)
        complete_all(db)
        tick(db)
        before = planning_calls(db)
        tick(db)
        calls.append(planning_calls(db) - before)
    assert calls[0] == calls[1] == calls[2] > 0


def complete_all(db: Db) -> None:
    for proc, frame, host in db.execute(
        "select pk_proc, pk_frame, str_name from proc join host using (pk_host) limit 3"
    ).fetchall():
        call(db, "report_completion", completion(db, proc, frame, host=host))


PLANNING = [
    "candidates", "snapshot", "live_procs", "warm_hosts", "ready_procs", "limit_headrooms", "show_shares",
    "raised_frames", "commit_plan", "publish_waits", "remember", "trim_limits", "charge_counters",
    "start_frames",
]  # fmt: skip


def planning_calls(db: Db) -> int:
    db.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return int(
        one(
            db, "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions where funcname = any(%s)", PLANNING
        )
    )  # fmt: skip


def test_aborted_ticks_leave_nothing_in_their_session(db: Db, dsn: str) -> None:
    """P92: a session that planned and failed a hundred times plans as a new one does."""
    uncap(db)
    for number in range(6):
        add_host(db, f"h{number}", cores=8)
    for number in range(6):
        add_job(db, f"j{number}", {"a": 5, "b": 5})
    db.execute("create function fail() returns trigger language plpgsql as $$ begin raise exception 'abort'; end $$")
    random = Random(4)
    tables = ["maestro.tick_wait", "maestro.tick_plan", "maestro.odometer", "maestro.launch", "maestro.fault"]
    for _ in range(100):
        table = random.choice(tables)
        db.execute(f"create trigger fail before insert or update on {table} execute function fail()")  # type: ignore[arg-type]
        # A counter that lies is repaired at first, which writes a fault; a launch that fails costs its layer alone.
        db.execute("update point set int_cores = 1")
        answer = one(db, "select maestro_tick(false, %s)", random.randrange(1000))
        assert answer["status"] == "error" or answer["errors"], table
        if answer["status"] == "planned":
            undo(db)
        db.execute(f"drop trigger fail on {table}")  # type: ignore[arg-type]
    db.execute("update point set int_cores = 0")
    keys = ("planned", "committed", "waiting", "idle_cores", "candidates", "groups")
    here = one(db, "select maestro_tick(true, 7)")
    with psycopg.connect(dsn, autocommit=True) as other:
        there = one(other, "select maestro_tick(true, 7)")
    assert [here[key] for key in keys] == [there[key] for key in keys]
    assert here["planned"] == 48
    plan = "select tick_id, layers, hosts, layer, host, frames, term_cores from maestro.tick_plan order by tick_id"
    placed = []
    for session in (db, None):
        with psycopg.connect(dsn) as other:
            asker: Any = session or other
            with asker.transaction(force_rollback=True):
                asker.execute("select maestro_tick(false, 7)")
                placed.append(asker.execute(plan).fetchall()[-1][1:])
    assert placed[0] == placed[1]
    assert accounting(db) == []


def undo(db: Db) -> None:
    """Give back whatever runs."""
    call(db, "unbook", column(db, "select pk_proc from proc"), 299)
    db.execute("delete from maestro.launch")


def test_without_launchers_planning_stops_at_the_backlog_and_goes_on_when_they_are_back(db: Db) -> None:
    """P73: nothing grows without bound, and nobody has to start it again."""
    uncap(db)
    add_host(db, "h", cores=64, mem_gib=256)
    add_job(db, "j", {"a": 200})
    db.execute("update maestro.setting set value = '20' where name = 'launch_backlog_max'")
    assert tick(db)["committed"] == 64
    for proc, frame in db.execute("select pk_proc, pk_frame from proc limit 30").fetchall():
        complete(db, proc, frame)
    halted = one(db, "select maestro_tick()")
    assert (halted["status"], halted["committed"]) == ("planned", 0)
    assert [error["what"] for error in halted["errors"]] == ["launchers"]
    launcher = call(db, "register_launcher", "machine", 1, "test")
    claimed = claim(db, launcher, 1000)
    call(db, "finish_launches", launcher, [{"launch_id": e["launch_id"], "outcome": "launched"} for e in claimed])
    assert tick(db)["committed"] == 30
    assert accounting(db) == []


NULLABLE = [
    ("job", "str_os"), ("job", "int_uid"), ("job", "str_email"), ("job", "str_visible_name"), ("job", "str_loki_url"),
    ("layer", "ts_start_after"), ("layer", "str_start_after_reason"),
]  # fmt: skip
STOCK = """
    select h.str_name
    from host h join host_stat hs using (pk_host) join alloc a using (pk_alloc), layer l join job j using (pk_job)
    where j.str_state = 'PENDING' and not j.b_paused and a.pk_facility = j.pk_facility
        and (coalesce(j.str_os, '') = '' or j.str_os = any(string_to_array(hs.str_os, ',')))
        and (l.ts_start_after is null or l.ts_start_after <= now())
        and l.int_cores_min <= h.int_cores_idle and l.int_mem_min <= h.int_mem_idle
        and (case when l.b_threadable then 1 else 0 end) >= (case when h.int_thread_mode = 1 then 1 else 0 end)
        and l.int_gpus_min <= h.int_gpus_idle and l.int_gpu_mem_min <= h.int_gpu_mem_idle
        and h.str_tags ~* ('(?x)' || l.str_tags || '\\y')
    order by 1
"""


@pytest.mark.parametrize(("table", "column_name"), NULLABLE)
def test_a_column_left_null_fits_the_hosts_that_the_stock_query_gives(db: Db, table: str, column_name: str) -> None:
    """P50: every column of layer and job that may be null."""
    for number, system in enumerate(("Linux", "Windows", "rhel40,Linux")):
        key = add_host(db, f"h{number}", cores=2)
        db.execute("update host_stat set str_os = %s where pk_host = %s", [system, key])
    db.execute("update host set int_thread_mode = 1 where str_name = 'h1'")
    add_job(db, "j", {"a": 40})
    db.execute(f"update {table} set {column_name} = null")  # type: ignore[arg-type]
    fits = column(db, STOCK)
    assert fits
    uncap(db)
    tick(db)
    assert column(db, "select distinct str_name from proc join host using (pk_host) order by 1") == fits
