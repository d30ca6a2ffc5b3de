"""Settings: the reference's names, what a bad value says, and that a value acts at the next tick."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import SHOW, accounting, add_host, add_job, column, one, tick

Db = psycopg.Connection[Any]

# The reference's properties without their prefix, with its defaults; the two dispatch caps are off here.
REFERENCE = {
    "layer_candidates_per_group_max": "2000", "reservations_enabled": "true", "reservation_block_seconds": "300",
    "reservation_max_fraction": "0.5", "reservation_max_grantees": "8", "backfill_enabled": "true",
    "locality_enabled": "true", "locality_bonus": "8", "locality_window_frames": "64", "stat_interval_seconds": "300",
    "host_limit_seat_bonus": "16", "layer_host_max_frac": "0.25", "mem_per_core": "0", "plan_zero_warn_ticks": "40",
    "job_frame_dispatch_max": "0", "host_frame_dispatch_max": "0", "score_weight_cores": "1", "score_weight_mem": "1",
    "score_weight_gpus": "4", "score_weight_gpu_mem": "1", "read_pool_size": "8", "launch_pool_size": "8",
    "launch_queue_size": "16384",
}  # fmt: skip


def put(db: Db, name: str, value: str) -> None:
    assert db.execute("update maestro.setting set value = %s where name = %s", [value, name]).rowcount == 1


def test_every_property_of_the_reference_has_its_name_and_default(db: Db) -> None:
    found = dict(db.execute("select name, default_value from maestro.setting").fetchall())
    assert {name: found.get(name) for name in REFERENCE} == REFERENCE


def test_every_setting_says_what_it_does_and_holds_an_allowed_value(db: Db) -> None:
    rows = db.execute("select name, description, kind, min_value, max_value, choices from maestro.setting").fetchall()
    for name, description, kind, low, high, choices in rows:
        assert len(description) > 20, name
        assert (kind in ("integer", "number")) == (low is not None) == (high is not None), name
        assert (kind == "choice") == (choices is not None), name
    db.execute("update maestro.setting set value = default_value")


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("reservation_max_fraction", "1.5", "from 0 to 1"),
        ("reservation_block_seconds", "soon", "a whole number from 0"),
        ("locality_bonus", "-1", "from 0 to 1000"),
        ("backfill_enabled", "maybe", "true or false"),
        ("mode", "on", "off, managed, facility"),
    ],
)
def test_a_bad_value_is_refused_and_the_message_says_what_is_allowed(db: Db, name: str, value: str, hint: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        put(db, name, value)
    assert caught.value.sqlstate == "QM001"
    assert hint in str(caught.value.diag.message_hint)


def test_a_replay_of_the_definitions_keeps_what_was_set(db: Db) -> None:
    put(db, "locality_bonus", "3")
    db.execute("select maestro.define_settings()")
    assert one(db, "select value from maestro.setting where name = 'locality_bonus'") == "3"


def test_selfish_services_take_every_idle_core_of_their_host(db: Db) -> None:
    add_host(db, "host1", cores=8)
    add_job(db, "job", {"render": 2})
    db.execute("update layer set str_services = 'shell, Nuke', b_threadable = true")
    put(db, "selfish_services", "katana, Nuke")
    assert tick(db)["committed"] == 1
    assert one(db, "select int_cores_reserved from proc") == 800
    assert accounting(db) == []


def test_a_host_short_of_memory_gets_nothing_until_it_reports_more(db: Db) -> None:
    add_host(db, "host1", cores=8)
    add_job(db, "job", {"render": 2})
    db.execute("update host_stat set int_mem_free = 500000")
    assert tick(db)["committed"] == 0
    assert "host short of memory" in str(column(db, "select reasons from maestro.waitlist"))
    put(db, "host_min_free_mem", "400000")
    assert tick(db)["committed"] == 2
    assert accounting(db) == []


def test_fifo_shows_serve_the_older_job_first(db: Db) -> None:
    add_host(db, "host1", cores=4)
    jobs = [add_job(db, f"job{number}", {"render": 3}) for number in range(4)]
    for age, job in enumerate(jobs):
        db.execute("update job set ts_started = now() - make_interval(hours => %s) where pk_job = %s", [age, job])
    put(db, "fifo_shows", "no such show, " + one(db, "select str_name from show where pk_show = %s", SHOW))
    assert tick(db)["committed"] == 4
    counts = dict(db.execute("select pk_job, count(*) from proc group by pk_job").fetchall())
    assert counts == {jobs[3]: 3, jobs[2]: 1}
    assert accounting(db) == []


def test_mode_managed_leaves_other_shows_alone_and_reads_the_flag_at_each_tick(db: Db) -> None:
    add_host(db, "host1", cores=4)
    add_job(db, "job", {"render": 2})
    put(db, "mode", "managed")
    assert tick(db)["candidates"] == 0
    db.execute("update show set b_scheduler_managed = true where pk_show = %s", [SHOW])
    assert tick(db)["committed"] == 2
    assert accounting(db) == []
