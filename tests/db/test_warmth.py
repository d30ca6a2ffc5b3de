"""Where a layer's data is warm: hosts that run it, and hosts that it left a short while ago."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.db.farm import accounting, add_host, add_job, call, column, layer_of, one, running, tick

Db = psycopg.Connection[Any]


def complete(db: Db, procs: list[tuple[str, str]]) -> None:
    names = dict(db.execute("select p.pk_proc, h.str_name from proc p join host h using (pk_host)").fetchall())
    call(
        db, "report_completion",
        [
            {"host": {"name": names[proc]}, "exit_status": 0, "run_time": 5,
             "frame": {"resource_id": proc, "frame_id": frame}}
            for proc, frame in procs
        ],
    )  # fmt: skip


def put(db: Db, name: str, value: str) -> None:
    db.execute("update maestro.setting set value = %s where name = %s", [value, name])


def test_a_host_is_left_when_the_layer_s_last_proc_there_ends(db: Db) -> None:
    host = add_host(db, "host1", cores=2)
    job = add_job(db, "job", {"render": 2})
    layer = layer_of(db, job, "render")
    tick(db)
    first, last = running(db, job)
    complete(db, [first])
    tick(db)
    assert one(db, "select count(*) from maestro.warmth") == 0
    complete(db, [last])
    call(db, "drain")
    assert db.execute("select * from maestro.warmth").fetchall() == [(host, layer, 2)]
    assert one(db, "select frames from maestro.odometer where pk_host = %s", host) == 2
    assert accounting(db) == []


def test_a_layer_returns_to_the_host_that_it_left_however_long_it_idled(db: Db) -> None:
    for number in range(6):
        add_host(db, f"host{number}", cores=4)
    job = add_job(db, "job", {"render": 1, "later": 1})
    tick(db)
    home = one(db, "select p.pk_host from proc p join layer l using (pk_layer) where l.str_name = 'render'")
    complete(db, running(db, job))
    tick(db)
    db.execute("update frame set str_state = 'WAITING', int_version = int_version + 1"
               " where pk_layer = %s", [layer_of(db, job, "render")])  # fmt: skip
    db.execute("update job set str_state = 'PENDING'")
    done = tick(db)
    assert done["locality"] == {"live_warm": 0, "cache_warm": 1, "cold": 0}
    assert one(db, "select pk_host from proc") == home
    assert db.execute("select warmth, score_terms ? 'locality' from maestro.placement where tick_id = %s",
                      [done["tick_id"]]).fetchall() == [("cache_warm", True)]  # fmt: skip
    assert accounting(db) == []


def test_other_work_cools_a_host_and_the_sweep_forgets_it(db: Db) -> None:
    host = add_host(db, "host1", cores=8)
    db.execute("insert into maestro.odometer values (%s, 100)", [host])
    job = add_job(db, "job", {"render": 3})
    layer = layer_of(db, job, "render")
    db.execute("insert into maestro.warmth values (%s, %s, 40)", [host, layer])
    assert one(db, "select maestro.forget_state(now())") == 0
    assert (
        tick(
            db,
        )["locality"]["cache_warm"]
        >= 1
    )
    put(db, "locality_window_frames", "60")
    assert one(db, "select maestro.forget_state(now())") == 1
    assert accounting(db) == []


def test_a_host_that_runs_the_layer_is_preferred_to_a_colder_emptier_one(db: Db) -> None:
    for number in range(6):
        add_host(db, f"host{number}", cores=8)
    job = add_job(db, "job", {"render": 5})
    db.execute("update job_resource set int_max_cores = 100")
    assert tick(db)["locality"]["cold"] == 1
    db.execute("update job_resource set int_max_cores = 400")
    assert tick(db)["locality"] == {"live_warm": 3, "cache_warm": 0, "cold": 0}
    assert one(db, "select count(distinct pk_host) from proc where pk_job = %s", job) == 1
    put(db, "locality_enabled", "false")
    put(db, "layer_host_max_frac", "0")
    db.execute("update job_resource set int_max_cores = 500")
    tick(db)
    assert one(db, "select count(distinct pk_host) from proc where pk_job = %s", job) == 2
    assert accounting(db) == []


def test_the_odometer_counts_booked_frames_and_no_dropped_ones(db: Db, dsn: str) -> None:
    host = add_host(db, "host1", cores=4)
    job = add_job(db, "job", {"render": 4})
    with psycopg.connect(dsn) as other:
        other.execute("select from frame where pk_job = %s and int_number = 2 for update", [job])
        tick(db)
    assert column(db, "select frames from maestro.odometer where pk_host = %s", host) == [3]
    tick(db)
    assert column(db, "select frames from maestro.odometer where pk_host = %s", host) == [4]
    assert accounting(db) == []


def test_warmth_off_writes_nothing(db: Db) -> None:
    put(db, "locality_window_frames", "0")
    add_host(db, "host1", cores=4)
    job = add_job(db, "job", {"render": 1})
    tick(db)
    complete(db, running(db, job))
    tick(db)
    assert one(db, "select count(*) from maestro.warmth") == 0
    assert accounting(db) == []
