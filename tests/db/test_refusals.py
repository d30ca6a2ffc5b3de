"""Hosts that refuse what the books say they have: the same size is not sent there again, and runs elsewhere (P23)."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.db.farm import accounting, add_host, add_job, call, claim, column, host_report, one, tick, uncap

Db = psycopg.Connection[Any]


def refuse_all(db: Db, host: str) -> int:
    """A launcher hears that the host refuses what was booked there; returns how many bookings were undone."""
    launcher = call(db, "register_launcher", "machine", 1, "test")
    claimed = claim(db, launcher, 1000)
    answer = call(db, "finish_launches", launcher, [
        {
            "launch_id": each["launch_id"], "error": "UNKNOWN: Not launching, insufficient idle cores",
            "outcome": "refused" if each["host_name"] == host else "launched",
            "barred_s": 300 * (each["host_name"] == host),
        }
        for each in claimed
    ])  # fmt: skip
    return int(answer["unbooked"])


def says(db: Db, host: str, idle_cores: int, **more: Any) -> None:
    """The host's report."""
    call(db, "report_status", {**host_report(host, **more), "core_info": {"idle_cores": idle_cores}})


def used(db: Db) -> list[str]:
    return column(db, "select distinct h.str_name from proc p join host h using (pk_host) order by 1")


def wide_job(db: Db, name: str, cores: int, frames: int) -> None:
    job = add_job(db, name, {"render": frames})
    db.execute("update layer set int_cores_min = %s, b_threadable = true where pk_job = %s", [cores * 100, job])


def test_a_refused_size_is_not_booked_there_again_until_the_host_reports_something_new(db: Db) -> None:
    add_host(db, "h1", cores=16)
    says(db, "h1", 1600)
    wide_job(db, "job", 4, frames=4)
    assert tick(db)["committed"] == 4
    assert refuse_all(db, "h1") == 4
    for _ in range(3):
        says(db, "h1", 1600)
        assert tick(db)["committed"] == 0
    (reasons,) = column(db, "select reasons from maestro.waitlist")
    assert {"reason": "refused by the host", "hosts": 1} in reasons
    says(db, "h1", 1500)
    assert tick(db)["committed"] == 4
    assert accounting(db) == []


def test_a_refused_frame_starts_elsewhere_in_the_next_tick(db: Db) -> None:
    add_host(db, "h1", cores=64, mem_gib=256)
    wide_job(db, "job", 4, frames=4)
    assert tick(db)["committed"] == 4
    add_host(db, "h2", cores=16)
    assert refuse_all(db, "h1") == 4
    assert tick(db)["committed"] == 4
    assert used(db) == ["h2"]
    assert accounting(db) == []


def test_smaller_frames_go_on_where_a_large_one_was_refused(db: Db) -> None:
    uncap(db)
    add_host(db, "h1", cores=16)
    wide_job(db, "large", 8, frames=1)
    assert tick(db)["committed"] == 1
    assert refuse_all(db, "h1") == 1
    wide_job(db, "small", 2, frames=9)
    assert tick(db)["committed"] == 3  # eight cores are not to be had, seven are
    assert one(db, "select count(*) from proc where int_cores_reserved = 800") == 0
    assert refuse_all(db, "h1") == 3
    assert tick(db)["committed"] == 0
    assert accounting(db) == []


def test_a_boot_ends_a_refusal_and_so_does_time(db: Db) -> None:
    add_host(db, "h1", cores=4)
    says(db, "h1", 1600)
    wide_job(db, "job", 4, frames=2)
    for end in (
        lambda: call(db, "report_startup", host_report("h1")),
        lambda: db.execute("select maestro.forget_state(now() + interval '6 min')"),
    ):
        tick(db)
        assert refuse_all(db, "h1") > 0
        assert tick(db)["committed"] == 0
        end()
    assert tick(db)["committed"] > 0
    assert accounting(db) == []
