"""Reports of hosts: what they create, what they change, what they may not change, and what is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import (
    FACILITY,
    GIB,
    Db,
    accounting,
    add_host,
    add_job,
    book,
    call,
    column,
    complete,
    frames_of,
    host_report,
    one,
    run,
)


def host(db: Db, name: str, what: str) -> Any:
    return one(db, f"select {what} from host join host_stat using (pk_host) where str_name = %s", name)


def orders(db: Db) -> list[tuple[str, str]]:
    return db.execute("select pk_proc, reason from maestro.host_order order by order_id").fetchall()


def test_the_first_report_creates_the_host_whichever_kind_it_is(db: Db) -> None:
    boot = {"host": host_report("one.example.org", num_gpus=2, total_gpu_mem=str(16 * GIB))["host"]}
    assert call(db, "report_startup", boot) == {"hosts": 1}
    assert call(db, "report_status", [host_report("two"), host_report("10.0.0.7")]) == {"hosts": 2, "kills": 0}
    assert db.execute(
        "select str_name, str_fqdn, str_lock_state, int_cores, int_cores_idle, int_mem, int_gpus_idle, str_tags,"
        " str_state from host join host_stat using (pk_host) order by str_name"
    ).fetchall() == [
        ("10.0.0.7", "10.0.0.7", "OPEN", 1600, 1600, 64 * GIB - 524288, 0, "general 32bit 64bit linux 10.0.0.7", "UP"),
        ("one", "one.example.org", "OPEN", 1600, 1600, 64 * GIB - 524288, 2, "general 32bit 64bit linux one", "UP"),
        ("two", "two", "OPEN", 1600, 1600, 64 * GIB - 524288, 0, "general 32bit 64bit linux two", "UP"),
    ]
    assert accounting(db) == []


def test_a_hosts_allocation_is_the_first_of_its_tags_that_names_one(db: Db) -> None:
    db.execute(
        "insert into alloc (pk_alloc, str_name, str_tag, pk_facility) values ('x', 'local.fx', 'fx', %s)", [FACILITY]
    )
    call(db, "report_status", host_report("h", facility="local", tags=["nothing", "fx", "general"]))
    assert host(db, "h", "pk_alloc") == "x"
    assert host(db, "h", "str_tags") == "fx 32bit h"


def test_bookable_memory_is_whole_gib_less_what_the_system_keeps(db: Db) -> None:
    rule = "select maestro.bookable_mem(%s, %s, %s)"
    assert one(db, rule, 15 * GIB + 1, True, False) == 16 * GIB - 524288
    assert one(db, rule, 15 * GIB + 1, False, False) == 15 * GIB - 524288
    assert one(db, rule, 30 * GIB, True, True) == 21 * GIB - 524288
    assert one(db, rule, 1, False, False) == 262144


def test_both_spellings_of_keys_and_numbers_as_strings_are_read_alike(db: Db) -> None:
    snake = {"name": "a", "num_procs": 4, "cores_per_proc": 100, "total_mem": str(8 * GIB), "boot_time": 1700000000}
    camel = {"name": "b", "numProcs": 4, "coresPerProc": "100", "totalMem": 8 * GIB, "bootTime": "1700000000"}
    call(db, "report_status", [{"host": snake}, {"host": camel}])
    for what in ("int_cores", "int_mem", "ts_booted"):
        assert host(db, "a", what) == host(db, "b", what)


def test_capacity_follows_the_reports_only_while_nothing_is_booked(db: Db) -> None:
    call(db, "report_status", host_report("h"))
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, host(db, "h", "pk_host"))
    for name in ("report_status", "report_startup"):
        call(db, name, host_report("h", num_procs=32))
        assert (host(db, "h", "int_cores"), accounting(db)) == (1600, [])
    complete(db, proc, frame)
    call(db, "report_status", host_report("h", num_procs=32, num_gpus=1))
    assert [host(db, "h", w) for w in ("int_cores", "int_cores_idle", "int_gpus_idle")] == [3200, 3200, 1]
    call(db, "report_status", {"host": {"name": "h"}})
    assert (host(db, "h", "int_cores"), accounting(db)) == (3200, [])


@pytest.mark.parametrize(
    ("state", "reported", "by_status", "by_boot"),
    [
        ("UP", "REPAIR", "REPAIR", "REPAIR"), ("DOWN", "UP", "UP", "UP"), ("DOWN", "DOWN", "UP", "UP"),
        ("REBOOTING", "UP", "REBOOTING", "UP"), ("REBOOT_WHEN_IDLE", "UP", "REBOOT_WHEN_IDLE", "UP"),
        ("REPAIR", "UP", "REPAIR", "REPAIR"), ("UP", 3, "REBOOT_WHEN_IDLE", "REBOOT_WHEN_IDLE"),
    ],
)
def test_hardware_state_follows_its_rule(db: Db, state: str, reported: Any, by_status: str, by_boot: str) -> None:
    add_host(db, "h")
    for name, expected in (("report_status", by_status), ("report_startup", by_boot)):
        db.execute("update host_stat set str_state = %s", [state])
        call(db, name, host_report("h", state=reported))
        assert host(db, "h", "str_state") == expected


def test_a_persons_lock_survives_twenty_restarts_and_nimby_clears_with_the_first_idle_report(db: Db) -> None:
    """P61."""
    for name in ("locked", "desk"):
        add_host(db, name)
    call(db, "lock_host", "locked")
    call(db, "report_status", host_report("desk", nimby_locked=True))
    assert host(db, "desk", "str_lock_state") == "NIMBY_LOCKED"
    for _ in range(20):
        call(db, "report_startup", host_report("locked"))
        call(db, "report_status", host_report("locked", nimby_locked=True))
    assert host(db, "locked", "str_lock_state") == "LOCKED"
    call(db, "report_status", host_report("desk"))
    assert host(db, "desk", "str_lock_state") == "OPEN"


def test_use_is_stored_and_the_booking_confirmed_without_a_new_version(db: Db) -> None:
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, add_host(db, "h"))
    db.execute("update proc set ts_ping = now() - interval '1 hour'")
    version = one(db, "select int_version from frame")
    call(db, "report_status", host_report("h", [run(proc, frame, rss=GIB // 2, llu_time=1700000000)]))
    assert db.execute(
        "select f.int_version, f.int_mem_used, p.int_mem_used, p.int_mem_reserved,"
        " p.ts_ping > now() - interval '1 min', extract(epoch from f.ts_llu)::bigint, m.int_max_rss, j.int_max_rss"
        " from frame f join proc p using (pk_frame) join layer_mem m on m.pk_layer = f.pk_layer join job_mem j on true"
    ).fetchone() == (version, GIB // 2, GIB // 2, GIB, True, 1700000000, GIB // 2, GIB // 2)
    assert accounting(db) == []


def test_a_reservation_grows_with_use_never_beyond_the_hosts_idle_memory(db: Db) -> None:
    pk_host = add_host(db, "h", mem_gib=10)
    frames = frames_of(db, add_job(db, "j", {"a": 3}))
    procs = [book(db, frame, pk_host, mem=2 * GIB) for frame in frames]
    runs = [run(proc, frame, rss=5 * GIB) for proc, frame in zip(procs, frames, strict=True)]
    call(db, "report_status", host_report("h", runs, total_mem=str(10 * GIB)))
    assert sorted(column(db, "select int_mem_reserved / 1048576 from proc")) == [2, 3, 5]
    assert (host(db, "h", "int_mem_idle"), accounting(db)) == (0, [])
    for proc, frame in zip(procs, frames, strict=True):
        complete(db, proc, frame)
    assert (host(db, "h", "int_mem_idle"), accounting(db)) == (10 * GIB, [])


def test_a_report_that_lists_a_frame_just_completed_changes_nothing(db: Db) -> None:
    frame = frames_of(db, add_job(db, "j", {"a": 2}))[0]
    proc = book(db, frame, add_host(db, "h"))
    complete(db, proc, frame)
    before = db.execute("select * from frame order by pk_frame").fetchall()
    assert call(db, "report_status", host_report("h", [run(proc, frame, rss=9 * GIB)]))["kills"] == 0
    assert db.execute("select * from frame order by pk_frame").fetchall() == before
    assert (host(db, "h", "int_mem_idle"), accounting(db)) == (host(db, "h", "int_mem"), [])


def test_runs_that_no_booking_covers_are_killed_each_for_its_reason(db: Db) -> None:
    pk_host = add_host(db, "h")
    add_host(db, "other")
    a, b, c, d = frames_of(db, add_job(db, "j", {"a": 4}))
    proc_a, proc_b = book(db, a, pk_host), book(db, b, pk_host)
    young, old = 10, 500
    assert call(db, "report_status", host_report("h", [run(proc_a, a, age_seconds=old), run("gone", c)]))["kills"] == 0
    call(db, "report_status", host_report("h", [run("gone", c, age_seconds=old)]))
    call(db, "report_status", host_report("h", [run(proc_a, d, age_seconds=young)]))
    call(db, "report_status", host_report("h", [run("older", b, age_seconds=young)]))
    call(db, "report_status", host_report("other", [run(proc_b, b, age_seconds=young)]))
    expected = [
        ("gone", "nobody booked this run"),
        (proc_a, "the booking is not for this frame on this host"),
        ("older", "the frame is booked elsewhere"),
        (proc_b, "the booking is not for this frame on this host"),
    ]
    assert orders(db) == expected
    assert call(db, "report_status", host_report("h", [run("gone", c, age_seconds=old)]))["kills"] == 0
    assert orders(db) == expected


def test_a_run_beyond_its_layers_timeout_is_killed(db: Db) -> None:
    pk_host = add_host(db, "h")
    a, b = frames_of(db, add_job(db, "j", {"a": 2}))
    proc_a, proc_b = book(db, a, pk_host), book(db, b, pk_host)
    db.execute("update layer set int_timeout = 10, int_timeout_llu = 5")
    call(db, "report_status", host_report("h", [run(proc_a, a, age_seconds=601), run(proc_b, b, age_seconds=599)]))
    assert orders(db) == [(proc_a, "the layer's timeout is over")]
    long_ago = one(db, "select extract(epoch from now() - interval '6 min')::bigint::text")
    call(db, "report_status", host_report("h", [run(proc_b, b, age_seconds=599, llu_time=long_ago)]))
    assert orders(db)[1] == (proc_b, "the log is silent")


H = {"name": "h"}
F = {"frame_id": "f", "resource_id": "p"}


@pytest.mark.parametrize(
    ("function", "report", "code", "message"),
    [
        ("report_status", {"host": {}}, "QM001", "report without a host name"),
        ("report_status", {"frames": []}, "QM001", "without a host name"),
        ("report_startup", {"host": {"name": "  "}}, "QM001", "boot report without a host name"),
        ("report_status", {"host": {"name": "h", "free_mem": -1}}, "QM001", "report of host h: free_mem cannot be -1"),
        ("report_status", {"host": {"name": "h", "load": "x"}}, "QM001", "load cannot be x"),
        ("report_status", {"host": {"name": "h", "state": "ILL"}}, "QM001", "state cannot be 'ILL'"),
        ("report_status", {"host": {"name": "h"}, "frames": [{}]}, "QM001", "frame_id is missing"),
        ("report_status", {"host": {"name": "new"}}, "QM001", "first report of host new without cores or memory"),
        ("report_status", {"host": {"name": "x" * 60}}, "QM001", "host name cannot be"),
        ("report_completion", {"host": H, "frame": {"resource_id": "p"}}, "QM001", "frame_id is missing"),
        ("report_completion", {"host": H, "frame": {"frame_id": "f"}}, "QM001", "resource_id is missing"),
        ("report_completion", {"frame": F}, "QM001", "completion without a host name"),
        ("report_completion", {"host": H, "frame": {**F, "max_rss": "-5"}}, "QM001", "max_rss cannot be -5"),
        ("report_completion", {"host": {"name": "no"}, "frame": F}, "QM002", "from host no, which nobody knows"),
    ],
)
def test_a_report_that_cannot_be_right_is_refused_in_one_line_and_stores_nothing(
    db: Db, function: str, report: dict[str, Any], code: str, message: str
) -> None:
    add_host(db, "h")
    good = {"host": {"name": "h"}, "frame": {"frame_id": "f", "resource_id": "p"}}
    before = db.execute("select * from host_stat").fetchall()
    with pytest.raises(psycopg.Error, match=message) as caught:
        call(db, function, [good, report])
    assert caught.value.sqlstate == code
    assert "\n" not in (caught.value.diag.message_primary or "")
    assert one(db, "select count(*) from maestro.completion") == 0
    assert db.execute("select * from host_stat").fetchall() == before


@pytest.mark.parametrize("report", ["3", "null", "[1]", '"x"'])
def test_what_is_no_report_at_all_is_refused(db: Db, report: str) -> None:
    for function in ("report_startup", "report_status", "report_completion"):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(f"select maestro.{function}(%s::jsonb)", [report])  # type: ignore[arg-type]
        assert caught.value.sqlstate == "QM001"


def test_an_empty_array_is_no_error(db: Db) -> None:
    assert one(db, "select maestro.report_status('[]')") == {"hosts": 0, "kills": 0}
    assert one(db, "select maestro.report_startup('[]')") == {"hosts": 0}
    assert one(db, "select maestro.report_completion('[]')") == {"accepted": 0}


def test_a_report_never_waits_for_rows_that_a_tick_holds(db: Db, dsn: str) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, pk_host)
    with psycopg.connect(dsn) as holder:
        for table in ("proc", "host", "frame", "layer_stat", "job_stat", "layer_mem", "job_mem", "job", "layer"):
            holder.execute(f"select from {table} for update")  # type: ignore[arg-type]
        db.execute("set lock_timeout = '2s'")
        report = host_report("h", [run(proc, frame, rss=9 * GIB)], num_procs=99, nimby_locked=True)
        assert call(db, "report_status", report) == {"hosts": 1, "kills": 0}
        assert call(db, "report_completion", {
            "host": {"name": "h"}, "frame": {"frame_id": frame, "resource_id": proc},
        }) == {"accepted": 1}
        holder.rollback()
    call(db, "report_status", report)
    assert host(db, "h", "str_lock_state") == "NIMBY_LOCKED"
    assert accounting(db) == []
