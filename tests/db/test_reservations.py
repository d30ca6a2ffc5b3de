"""Held hosts: who gets them, how long they are held, what may borrow them, and what people read about them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import accounting, add_host, add_job, call, column, layer_of, one, running, tick

Db = psycopg.Connection[Any]


def put(db: Db, name: str, value: object) -> None:
    assert db.execute("update maestro.setting set value = %s where name = %s", [str(value), name]).rowcount == 1


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


def crowd(db: Db, hosts: int = 4, block_seconds: int = 0) -> tuple[str, str]:
    """Hosts full of one-core frames, and a layer as wide as a host that waits. Keys of narrow and wide layer."""
    put(db, "reservation_block_seconds", block_seconds)
    for number in range(hosts):
        add_host(db, f"host{number}", cores=8)
    narrow = add_job(db, "narrow", {"render": 400})
    assert tick(db)["committed"] == 8 * hosts
    wide = add_job(db, "wide", {"render": 3})
    db.execute("update layer set int_cores_min = 800 where pk_job = %s", [wide])
    return layer_of(db, narrow, "render"), layer_of(db, wide, "render")


def pass_some_time(db: Db, seconds: int) -> None:
    """Let time pass between two ticks."""
    db.execute("update maestro.tick set started_at = started_at - make_interval(secs => %s)", [seconds])


def test_a_wide_layer_gets_a_host_although_small_frames_stream_by(db: Db) -> None:
    _, wide = crowd(db)
    granted = tick(db)["reservations"]["granted"]
    pass_some_time(db, 1)
    assert granted + tick(db)["reservations"]["granted"] >= 1
    held = column(db, "select pk_host from maestro.reservation")
    assert 1 <= len(held) <= 2  # half of the hosts at most
    assert db.execute("select distinct pk_layer, cores_min from maestro.reservation").fetchall() == [(wide, 800)]
    for _ in range(12):  # frames end everywhere, one a host and tick
        complete(db, db.execute("select distinct on (pk_host) pk_proc, pk_frame from proc"
                                " where int_cores_reserved = 100 order by pk_host, pk_proc").fetchall())  # fmt: skip
        tick(db)
    assert one(db, "select count(*) from proc where pk_layer = %s", wide) >= 1
    assert accounting(db) == []


def test_without_reservations_the_wide_layer_starves_and_nothing_is_held(db: Db) -> None:
    _, wide = crowd(db)
    put(db, "reservations_enabled", "false")
    for _ in range(6):
        complete(db, db.execute("select distinct on (pk_host) pk_proc, pk_frame from proc"
                                " order by pk_host, pk_proc").fetchall())  # fmt: skip
        tick(db)
    assert one(db, "select count(*) from proc where pk_layer = %s", wide) == 0
    assert one(db, "select count(*) from maestro.reservation") == 0
    assert accounting(db) == []


def test_blocked_time_is_kept_in_the_database_and_is_due_only_after_its_length(db: Db) -> None:
    _, wide = crowd(db, block_seconds=50)
    tick(db)
    pass_some_time(db, 30)
    assert tick(db)["reservations"] == {"held": 0, "granted": 0, "requested": 0}
    assert 30000 <= one(db, "select blocked_ms from maestro.blocked_debt where pk_layer = %s", wide) < 40000
    pass_some_time(db, 30)
    assert tick(db)["reservations"]["granted"] >= 1


def test_a_planner_that_starts_anew_knows_what_is_held(db: Db, dsn: str) -> None:
    crowd(db)
    tick(db)
    pass_some_time(db, 1)
    tick(db)
    held = column(db, "select pk_host from maestro.reservation order by 1")
    assert held
    with psycopg.connect(dsn, autocommit=True) as other:
        answer = one(other, "select maestro_tick()")
    assert answer["reservations"]["held"] == len(held)
    assert column(db, "select pk_host from maestro.reservation order by 1") == held


@pytest.mark.parametrize(
    "end",
    [
        "update job set b_paused = true where str_name = 'wide'",
        "select maestro.kill_job('wide')",
        "select maestro.eat_frames('wide', 'render')",
    ],
    ids=["paused", "killed", "eaten"],
)
def test_an_owner_that_needs_its_hosts_no_more_gives_them_back_at_the_next_tick(db: Db, end: str) -> None:
    crowd(db)
    tick(db)
    pass_some_time(db, 1)
    tick(db)
    assert one(db, "select count(*) from maestro.reservation") > 0
    db.execute(end)  # type: ignore[arg-type]
    assert tick(db)["reservations"]["held"] == 0
    assert one(db, "select count(*) from maestro.reservation") == 0
    assert accounting(db) == []


def test_a_held_host_takes_nobody_s_frame_of_unknown_length(db: Db) -> None:
    narrow, _ = crowd(db, hosts=2)
    tick(db)
    pass_some_time(db, 1)
    tick(db)
    held = one(db, "select pk_host from maestro.reservation")
    complete(db, db.execute("select pk_proc, pk_frame from proc where pk_host = %s limit 3", [held]).fetchall())
    db.execute("update layer_usage set int_frame_success_count = 0 where pk_layer = %s", [narrow])
    done = tick(db)
    assert (done["committed"], done["backfilled"]) == (0, 0)
    assert one(db, "select int_cores_idle from host where pk_host = %s", held) == 300
    assert accounting(db) == []


def test_when_a_host_is_ready_is_shown_and_never_lies_in_the_past(db: Db) -> None:
    narrow, wide = crowd(db, hosts=2)
    tick(db)
    pass_some_time(db, 1)
    last = tick(db)["tick_id"]
    shown = db.execute(
        "select r.pk_layer, r.cores_needed, r.ready_at, r.tick_id from maestro.host_ready_at r"
        " join maestro.reservation using (pk_host)"
    ).fetchall()
    assert shown == [(wide, 800, None, last)]  # nobody knows yet how long the frames there run
    db.execute("update layer_usage set int_frame_success_count = 2, int_clock_time_success = 1200 where pk_layer = %s",
               [narrow])  # fmt: skip
    minutes = "select round(extract(epoch from ready_at - now()) / 60) from maestro.host_ready_at where pk_layer = %s"
    assert one(db, minutes, wide) == 10
    db.execute("update proc set ts_dispatched = ts_dispatched - interval '1 hour'")
    assert one(db, minutes, wide) == 0


def test_running_procs_are_read_only_while_somebody_holds_or_may_hold_hosts(db: Db) -> None:
    add_host(db, "host1", cores=4)
    add_job(db, "job", {"render": 10})
    tick(db)
    # The next tick would fail if it asked.
    db.execute("create or replace function maestro.ready_procs(p_hosts text []) returns table (pk_host text,"
               " end_s double precision [], cores integer [], mem bigint [], gpus integer [], gpu_mem bigint [])"
               " language plpgsql as $$ begin raise exception 'asked'; end $$")  # fmt: skip
    assert tick(db)["reservations"] == {"held": 0, "granted": 0, "requested": 0}
    assert running(db, one(db, "select pk_job from job"))
