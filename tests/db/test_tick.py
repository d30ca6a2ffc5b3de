"""The tick against a real database: what it books, what its guards refuse, and who may plan."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from sim.farm import add_hosts, add_workload
from tests.db.farm import (
    FOLDER,
    SHOW,
    add_host,
    add_job,
    call,
    claim,
    column,
    completion,
    frames_of,
    layer_of,
    one,
    state,
    uncap,
)

Db = psycopg.Connection[Any]


def tick(db: Db, dry_run: bool = False, seed: int | None = 1) -> dict[str, Any]:
    return dict(one(db, "select maestro_tick(%s, %s)", dry_run, seed))


def faults(db: Db) -> list[Any]:
    return db.execute("select * from maestro.check_accounting()").fetchall()


def finish_running(db: Db) -> None:
    """Every running frame's success, reported; the next tick drains it."""
    for proc, frame in db.execute("select pk_proc, pk_frame from proc").fetchall():
        call(db, "report_completion", completion(db, proc, frame))


@pytest.mark.parametrize("large_batch", [1000, 1])
def test_a_cold_farm_fills_in_one_tick_and_the_books_balance(db: Db, large_batch: int) -> None:
    db.execute(
        "create or replace function maestro.large_batch() returns integer language sql immutable"
        f" set search_path = pg_catalog, pg_temp as 'select {large_batch}'"  # type: ignore[arg-type]
    )
    add_hosts(db, 0.03)
    add_workload(db, 6000)
    done = tick(db)
    assert done["errors"] == []
    assert done["committed"] == done["planned"] > 400
    assert done["dropped"] == {}
    assert done["idle_cores"] <= 0.005 * done["cores"]
    assert one(db, "select count(*) from proc") == done["committed"]
    assert one(db, "select count(*) from maestro.launch where state = 'ready'") == done["committed"]
    assert one(db, "select sum(frames) from maestro.placement where tick_id = %s", done["tick_id"]) == done["committed"]
    assert one(db, "select count(*) from frame_history_queue where str_event = 'S'") == done["committed"]
    assert one(db, "show session_replication_role") == "origin"
    assert faults(db) == []


def test_planned_is_committed_plus_dropped_when_a_frame_is_held_by_another_session(db: Db, dsn: str) -> None:
    add_host(db, "host1", cores=4)
    job = add_job(db, "job", {"render": 4})
    held = frames_of(db, job)[1]
    with psycopg.connect(dsn) as other:
        other.execute("select from frame where pk_frame = %s for update", [held])
        done = tick(db)
    assert (done["planned"], done["committed"], done["dropped"]) == (4, 3, {"frame taken": 1})
    assert state(db, held) == "WAITING"
    assert faults(db) == []
    assert tick(db)["committed"] == 1


def test_a_host_closed_between_plan_and_commit_gets_no_booking(db: Db) -> None:
    host = add_host(db, "host1", cores=4)
    job = add_job(db, "job", {"render": 4})
    layer = layer_of(db, job, "render")
    db.execute("update host set str_lock_state = 'LOCKED' where pk_host = %s", [host])
    answer = one(
        db,
        "select maestro.commit_plan(1, now(), array[%s], array[%s], '{1,1}', '{1,1}', '{100,100}', '{1024,1024}',"
        " '{0,0}', '{0,0}')",
        layer, host,
    )  # fmt: skip
    assert answer == {"committed": 0, "dropped": {"host changed": 2}, "lost": [1, 2]}
    assert one(db, "select count(*) from proc") == 0
    assert faults(db) == []


@pytest.mark.parametrize("column_name", ["int_cores_idle", "int_mem_idle", "int_gpus_idle", "int_gpu_mem_idle"])
def test_a_plan_from_a_lying_snapshot_cannot_overbook(db: Db, column_name: str) -> None:
    host = add_host(db, "host1", cores=4, gpus=4)
    job = add_job(db, "job", {"render": 4})
    db.execute(f"update host set {column_name} = 1 where pk_host = %s", [host])  # type: ignore[arg-type]
    answer = one(
        db,
        "select maestro.commit_plan(1, now(), array[%s], array[%s], '{1,1}', '{1,1}', '{100,100}', '{1024,1024}',"
        " '{1,1}', '{1024,1024}')",
        layer_of(db, job, "render"), host,
    )  # fmt: skip
    assert answer["committed"] == 0
    assert answer["dropped"] == {"host changed": 2}


def test_one_layer_whose_rows_raise_costs_that_layer_alone_and_is_named(db: Db) -> None:
    add_host(db, "host1", cores=16)
    good = add_job(db, "good", {"render": 3})
    bad = add_job(db, "bad", {"render": 3})
    db.execute(
        "create function refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'this layer''s rows are broken'; end $$"
    )
    db.execute(
        "create trigger refuse before update on frame for each row"
        f" when (old.pk_job = '{bad}') execute function refuse()"  # type: ignore[arg-type]
    )
    done = tick(db)
    assert done["committed"] == 3
    assert done["dropped"] == {"error": 3}
    assert [error["what"] for error in done["errors"]] == ["layer " + layer_of(db, bad, "render")]
    assert "this layer's rows are broken" in done["errors"][0]["message"]
    assert {state(db, frame) for frame in frames_of(db, good)} == {"RUNNING"}
    assert faults(db) == []


def test_a_malformed_tag_regex_costs_its_own_layer_only(db: Db) -> None:
    add_host(db, "host1", cores=16)
    good, bad = add_job(db, "good", {"render": 1}), add_job(db, "bad", {"render": 1})
    db.execute("update layer set str_tags = 'general | (' where pk_job = %s", [bad])
    done = tick(db)
    assert done["status"] == "planned"
    assert state(db, frames_of(db, good)[0]) == "RUNNING"
    assert column(db, "select reasons from maestro.waitlist where pk_job = %s", bad) == [
        [{"reason": "malformed tags", "hosts": 1}]
    ]


def test_a_second_caller_is_told_locked_at_once(db: Db, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("select maestro_tick()")  # its transaction, and so the lock, stays open
        assert tick(db)["status"] == "locked"
        other.rollback()
    assert tick(db)["status"] == "planned"


def test_two_callers_at_once_never_book_a_frame_twice(db: Db, dsn: str) -> None:
    uncap(db)
    for number in range(4):
        add_host(db, f"host{number}", cores=16)
    add_job(db, "job", {"render": 200})
    start = threading.Barrier(2)

    def ticks() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            start.wait()
            for _ in range(20):
                own.execute("select maestro_tick()")

    callers = [threading.Thread(target=ticks) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert one(db, "select count(*) from proc") == 64
    assert one(db, "select count(distinct pk_frame) from maestro.launch") == 64
    assert faults(db) == []


def test_mode_off_plans_nothing_and_mode_managed_only_managed_shows(db: Db) -> None:
    add_host(db, "host1")
    job = add_job(db, "job", {"render": 1})
    db.execute("update maestro.setting set value = 'off' where name = 'mode'")
    assert tick(db)["status"] == "off"
    db.execute("update maestro.setting set value = 'managed' where name = 'mode'")
    assert tick(db)["committed"] == 0
    db.execute("update show set b_scheduler_managed = true where pk_show = %s", [SHOW])
    assert tick(db)["committed"] == 1
    assert state(db, frames_of(db, job)[0]) == "RUNNING"


def test_a_dry_run_tells_the_plan_and_leaves_no_trace(db: Db) -> None:
    add_host(db, "host1")
    job = add_job(db, "job", {"render": 5})
    done = tick(db, dry_run=True)
    assert (done["dry_run"], done["committed"]) == (True, 5)
    assert one(db, "select count(*) from proc") == 0
    assert one(db, "select count(*) from maestro.tick") == 0
    assert {state(db, frame) for frame in frames_of(db, job)} == {"WAITING"}
    assert tick(db)["committed"] == 5


def test_an_error_rolls_the_tick_back_and_is_recorded(db: Db) -> None:
    add_host(db, "host1")
    add_job(db, "job", {"render": 1})
    db.execute("alter table maestro.launch rename to launch_away")
    done = tick(db)
    assert done["status"] == "error"
    assert "maestro.launch" in done["errors"][0]["message"]
    assert one(db, "select count(*) from proc") == 0
    assert column(db, "select status from maestro.tick") == ["error"]
    db.execute("alter table maestro.launch_away rename to launch")
    assert tick(db)["committed"] == 1


def test_one_notification_a_tick_that_booked_and_none_otherwise(db: Db) -> None:
    add_host(db, "host1", cores=16)
    add_job(db, "job", {"render": 10})
    db.execute("listen maestro_launch")
    booked, nothing = tick(db), tick(db)
    assert nothing["committed"] == 0
    assert [note.payload for note in db.notifies(timeout=1)] == [str(booked["tick_id"])]


@pytest.mark.parametrize(
    ("change", "most", "reason"),
    [
        ("update job_resource set int_max_cores = 300", 3, "job cores"),
        ("update folder_resource set int_max_cores = 500", 5, "folder cores"),
        ("update subscription set int_burst = 200", 2, "subscription burst"),
        ("update job set b_paused = true", 0, "job paused"),
        ("update layer set ts_start_after = now() + interval '1 hour'", 0, "start after"),
        ("update layer set str_tags = 'cloud'", 0, "tags"),
        ("update job set str_os = 'windows'", 0, "os"),
        ("delete from subscription", 0, "no subscription"),
        ("update host set int_thread_mode = 1; update layer set b_threadable = false", 0, "thread mode"),
    ],
)
def test_a_gate_or_cap_holds_and_its_reason_is_named(db: Db, change: str, most: int, reason: str) -> None:
    add_host(db, "host1", cores=16)
    add_job(db, "job", {"render": 10})
    for statement in change.split(";"):
        db.execute(statement)  # type: ignore[arg-type]
    tick(db)
    assert one(db, "select count(*) from proc") == most
    tick(db)  # at a cap, the reason stands once the layer no longer flows
    assert reason in [each["reason"] for each in column(db, "select reasons from maestro.waitlist")[0]]
    assert faults(db) == []


def test_a_layer_needs_room_in_every_limit_it_is_bound_to(db: Db) -> None:
    add_host(db, "host1", cores=16)
    job = add_job(db, "job", {"render": 10})
    for name, most in (("wide", 8), ("narrow", 3)):
        db.execute("insert into limit_record (pk_limit_record, str_name, int_max_value) values (%s, %s, %s)",
                   [name, name, most])  # fmt: skip
        db.execute("insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values (%s, %s, %s)",
                   [name, layer_of(db, job, "render"), name])  # fmt: skip
    assert tick(db)["committed"] == 3
    assert tick(db)["waiting"]["no_license"] == 7


def test_a_layer_whose_tags_name_a_host_runs_there_and_only_there(db: Db) -> None:
    for number in range(3):
        add_host(db, f"host{number}", cores=4)
    job = add_job(db, "job", {"render": 9})
    db.execute("update layer set str_tags = 'HOST1.studio.lan' where pk_job = %s", [job])
    assert tick(db)["committed"] == 4
    assert column(db, "select distinct str_host from frame where str_state = 'RUNNING'") == ["host1"]


def test_frames_start_in_dispatch_order_after_marks_moved_on_and_back(db: Db) -> None:
    uncap(db)
    add_host(db, "host1", cores=16, mem_gib=256)
    job = add_job(db, "job", {"render": 60})
    frames = frames_of(db, job)
    for _ in range(3):
        tick(db)
        finish_running(db)
    tick(db)
    assert one(db, "select first_order from maestro.layer_mark") > 16
    assert {state(db, frame) for frame in frames[:48]} == {"SUCCEEDED"}
    db.execute("update frame set str_state = 'WAITING', int_version = int_version + 1 where pk_frame = %s", [frames[5]])
    assert one(db, "select first_order from maestro.layer_mark") <= 6
    finish_running(db)
    assert tick(db)["committed"] == 1
    assert state(db, frames[5]) == "RUNNING"
    assert faults(db) == []


def test_a_run_after_a_real_failure_counts_as_a_retry_and_after_a_lost_host_does_not(db: Db) -> None:
    add_host(db, "host1", cores=16)
    job = add_job(db, "job", {"render": 3})
    new, failed, lost = frames_of(db, job)
    db.execute("update frame set int_exit_status = 1 where pk_frame = %s", [failed])
    db.execute("update frame set int_exit_status = 399 where pk_frame = %s", [lost])
    tick(db)
    assert column(
        db, "select int_retries from frame order by array_position(%s::text[], pk_frame::text)", [new, failed, lost]
    ) == [0, 1, 0]


def test_counter_rows_are_written_once_however_many_frames_are_booked(db: Db) -> None:
    uncap(db)
    for number in range(3):
        add_host(db, f"host{number}", cores=16)
    add_job(db, "job", {"render": 100})
    tick(db)
    db.execute("select pg_stat_force_next_flush()")
    assert one(db, "select n_tup_upd from pg_stat_user_tables where relname = 'folder_resource'") == 1
    assert one(db, "select n_tup_upd from pg_stat_user_tables where relname = 'subscription'") == 1
    assert one(db, "select int_cores from folder_resource where pk_folder = %s", FOLDER) == 4800


def test_a_tick_that_hangs_is_ended_and_the_next_one_starts(db: Db, dsn: str) -> None:
    """P65: any query made to hang; a launcher's heartbeat is enough to end it."""
    db.execute("update maestro.setting set value = '1' where name = 'tick_hang_seconds'")
    add_host(db, "host1")
    add_job(db, "job", {"render": 1})
    db.execute("create function hang() returns trigger language plpgsql as $$ begin perform pg_sleep(600); end $$")
    db.execute("create trigger hang before insert on maestro.launch for each row execute function hang()")
    answers: list[Any] = []
    with psycopg.connect(dsn, autocommit=True) as other:
        hanging = threading.Thread(target=lambda: answers.append(tick(other)))
        hanging.start()
        while hanging.is_alive():
            call(db, "heartbeat_launcher", 1, False, {})
            hanging.join(0.2)
        assert answers[0]["status"] == "error"
        assert "canceling statement due to user request" in answers[0]["errors"][0]["message"]
        db.execute("drop trigger hang on maestro.launch")
        assert tick(other)["committed"] == 1
    assert faults(db) == []


def test_a_row_that_somebody_keeps_locked_costs_a_tick_and_is_named(db: Db, dsn: str) -> None:
    db.execute("update maestro.setting set value = '1' where name = 'tick_hang_seconds'")
    add_host(db, "host1")
    add_job(db, "job", {"render": 1})
    with psycopg.connect(dsn) as other:
        other.execute("select from subscription for update")
        done = tick(db)
        assert done["status"] == "error"
        assert "lock timeout" in done["errors"][0]["message"]
    assert tick(db)["committed"] == 1
    assert faults(db) == []


def test_a_cancelled_caller_ends_at_once(db: Db, dsn: str) -> None:
    """Who stops a loop of ticks means it."""
    add_host(db, "host1")
    add_job(db, "job", {"render": 1})
    db.execute("create function hang() returns trigger language plpgsql as $$ begin perform pg_sleep(600); end $$")
    db.execute("create trigger hang before insert on maestro.launch for each row execute function hang()")
    db.execute("update maestro.setting set value = '3600' where name = 'tick_hang_seconds'")
    failed: list[str | None] = []

    def ticks(own: Db) -> None:
        try:
            own.execute("call maestro.run(interval '1 s', interval '1 hour')")
        except psycopg.Error as error:
            failed.append(error.sqlstate)

    with psycopg.connect(dsn, autocommit=True) as other:
        running = threading.Thread(target=ticks, args=(other,))
        running.start()
        while running.is_alive():
            db.execute("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'")
            running.join(0.1)
    assert failed == ["57014"]


@pytest.mark.parametrize(("cap", "ticks"), [("1", 1), ("0", None)])
def test_a_session_over_its_cap_ends_its_run_after_a_commit(db: Db, dsn: str, cap: str, ticks: int | None) -> None:
    """P91: the next call of maestro.run has a session of its own."""
    db.execute("update maestro.setting set value = %s where name = 'session_max_mb'", [cap])
    add_host(db, "host1")
    add_job(db, "job", {"render": 1})
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("call maestro.run(interval '10 ms', interval '2 s')")
        assert one(own, "select maestro.session_is_full()") == (cap == "1")
    planned = one(db, "select count(*) from maestro.tick where status = 'planned'")
    assert planned == ticks if ticks else planned > 1
    assert one(db, "select count(*) from proc") == 1
    assert faults(db) == []


def test_the_wait_of_a_frame_counts_from_when_it_could_run_whatever_is_edited_meanwhile(db: Db) -> None:
    """P51."""
    add_host(db, "host1")
    job = add_job(db, "job", {"render": 2})
    frames = frames_of(db, job)
    db.execute("update frame set ts_eligible = now() - interval '100 s', int_exit_status = -1")
    db.execute("update frame set int_dispatch_order = int_dispatch_order + 7, int_version = int_version + 1")
    db.execute("update layer set int_cores_min = 200")
    db.execute("update frame set int_exit_status = 1 where pk_frame = %s", [frames[1]])
    tick(db)
    launcher = call(db, "register_launcher", "machine", 1, "test")
    waited = {each["pk_frame"]: each["waited"] for each in claim(db, launcher, 10)}
    assert 100 <= waited[frames[0]] < 200
    assert waited[frames[1]] is None  # its second run
