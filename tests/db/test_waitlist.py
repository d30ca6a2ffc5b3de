"""Why work waits, what waits for each allocation, and who is entitled to what: no waiting layer is without a reason."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import ALLOC, SHOW, accounting, add_host, add_job, column, frames_of, one, tick

Db = psycopg.Connection[Any]


def reasons(db: Db) -> dict[str, int]:
    """All reasons of the only waiting layer, and the hosts that each rules out."""
    (found,) = column(db, "select reasons from maestro.waitlist")
    return {each["reason"]: each["hosts"] for each in found}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("update job set b_paused = true", "job paused"),
        ("update job set b_auto_book = false", "booking off for the job"),
        ("update layer set ts_start_after = now() + interval '1 hour'", "start after"),
        ("update job_resource set int_max_cores = 50", "job cores"),
        ("update job_resource set int_max_gpus = 0; update layer set int_gpus_min = 1", "job gpus"),
        ("update folder_resource set int_max_cores = 50", "folder cores"),
        ("update subscription set int_burst = 50", "subscription burst"),
        ("update subscription set int_burst = 0", "no subscription"),
        ("delete from subscription", "no subscription"),
        ("update layer set str_tags = 'cloud'", "tags"),
        ("update layer set str_tags = 'general | ('", "malformed tags"),
        ("update job set str_os = 'windows'", "os"),
        ("update host set int_thread_mode = 1", "thread mode"),
        ("update host_stat set int_mem_free = 1000", "host short of memory"),
    ],
)
def test_every_cause_that_keeps_a_layer_waiting_is_named(db: Db, change: str, reason: str) -> None:
    add_host(db, "host1", cores=4, gpus=1)
    add_job(db, "job", {"render": 3})
    for statement in change.split(";"):
        db.execute(statement)  # type: ignore[arg-type]
    assert tick(db)["committed"] == 0
    assert any(found.startswith(reason) for found in reasons(db)), reasons(db)
    assert accounting(db) == []


@pytest.mark.parametrize(
    ("change", "reason", "cap"),
    [
        ("update job_resource set int_max_cores = 300", "job cores", 300),
        ("update job_resource set int_max_gpus = 0; update layer set int_gpus_min = 1", "job gpus", 0),
        ("update folder_resource set int_max_cores = 250", "folder cores", 250),
        ("update subscription set int_burst = 50", "subscription burst", 50),
        ("update maestro.setting set value = '0.25' where name = 'layer_host_max_frac'", "layer_host_max_frac", 0.25),
        ("insert into limit_record (pk_limit_record, str_name, int_max_value) values ('l', 'licence', 2);"
         "insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) select 'l', pk_layer, 'l' from layer",
         "limit licence", 2),
    ],
)  # fmt: skip
def test_a_cap_that_binds_is_named_with_its_value(db: Db, change: str, reason: str, cap: float) -> None:
    """P20."""
    add_host(db, "host1", cores=32, gpus=1)
    add_job(db, "job", {"render": 40})
    for statement in change.split(";"):
        db.execute(statement)  # type: ignore[arg-type]
    for _ in range(3):
        tick(db)
    (found,) = column(db, "select reasons from maestro.waitlist")
    assert {each["reason"]: each["cap"] for each in found if "cap" in each} == {reason: cap}
    assert accounting(db) == []


def test_a_thousand_frames_use_all_of_thirty_idle_hosts_within_two_ticks(db: Db) -> None:
    """P20: nothing but what is named caps a job."""
    for number in range(30):
        add_host(db, f"host{number}", cores=32)
    add_job(db, "job", {"render": 1000})
    tick(db)
    tick(db)
    assert one(db, "select count(distinct pk_host) from proc") == 30


def test_three_causes_at_once_are_all_named_with_the_hosts_that_each_rules_out(db: Db) -> None:
    for number in range(5):
        add_host(db, f"host{number}", cores=4)
    db.execute("update host set str_tags = 'cloud' where str_name in ('host0', 'host1')")
    db.execute("update host_stat set str_os = 'windows' where pk_host = (select pk_host from host"
               " where str_name = 'host2')")  # fmt: skip
    add_job(db, "job", {"render": 3})
    db.execute("update job set str_os = (select str_os from host_stat where str_os <> 'windows' limit 1)")
    db.execute("update layer set int_cores_min = 1600")
    assert tick(db)["committed"] == 0
    found = reasons(db)
    assert (found["tags"], found["os"]) == (2, 1)
    assert len(found) >= 3
    assert accounting(db) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("update host set str_lock_state = 'LOCKED'", "host locked"),
        ("update host set str_lock_state = 'NIMBY_LOCKED'", "host in use by its owner"),
        ("update host_stat set str_state = 'DOWN'", "host down"),
        ("select maestro.drain_host('host1', 'test')", "host drains"),
        ("delete from host", "no host"),
    ],
)
def test_a_pin_to_a_host_that_cannot_be_used_says_why(db: Db, change: str, reason: str) -> None:
    add_host(db, "host1", cores=4)
    add_host(db, "host2", cores=4)
    add_job(db, "job", {"render": 3})
    db.execute("update layer set str_tags = 'HOST1.studio.lan'")
    db.execute(change)  # type: ignore[arg-type]
    assert tick(db)["committed"] == 0
    assert any(found.startswith(reason) for found in reasons(db)), reasons(db)
    assert accounting(db) == []


def test_the_buckets_add_up_to_what_waits(db: Db) -> None:
    add_host(db, "host1", cores=4)
    add_job(db, "flows", {"render": 9})
    paused = add_job(db, "paused", {"render": 5})
    wide = add_job(db, "wide", {"render": 2})
    db.execute("update job set b_paused = true where pk_job = %s", [paused])
    db.execute("update layer set int_cores_min = 900 where pk_job = %s", [wide])
    done = tick(db)
    waits = one(db, "select sum(int_waiting_count) from layer_stat")
    assert sum(done["waiting"].values()) == waits == 12
    assert one(db, "select count(*) from maestro.waitlist") == 3
    assert accounting(db) == []


def test_a_layer_leaves_the_waitlist_with_its_last_waiting_frame(db: Db) -> None:
    add_host(db, "host1", cores=4)
    job = add_job(db, "job", {"render": 6})
    tick(db)
    assert column(db, "select waiting_frames from maestro.waitlist") == [2]
    db.execute("update frame set str_state = 'EATEN', int_version = int_version + 1 where pk_frame = any(%s)",
               [frames_of(db, job)[4:]])  # fmt: skip
    assert column(db, "select waiting_frames from maestro.waitlist") == []
    tick(db)
    assert one(db, "select count(*) from maestro.last_wait") == 0


def test_work_per_allocation_is_one_look_and_leaves_out_what_is_held_back(db: Db) -> None:
    add_host(db, "host1", cores=4)
    add_job(db, "job", {"render": 10, "comp": 3})
    paused = add_job(db, "paused", {"render": 50})
    db.execute("update job set b_paused = true where pk_job = %s", [paused])
    db.execute("update layer set int_gpus_min = 1 where str_name = 'comp'")
    last = tick(db)["tick_id"]
    row = db.execute(
        "select layers, waiting_frames, cores, gpus, tick_id from maestro.alloc_work where pk_alloc = %s", [ALLOC]
    ).fetchone()
    assert row == (2, 9, 900, 3, last)
    assert one(db, "select mem from maestro.alloc_work where pk_alloc = %s", ALLOC) == 9 * 1048576


def test_shares_and_entitlements_are_of_this_moment(db: Db) -> None:
    add_host(db, "host1", cores=4)
    add_job(db, "job", {"render": 10})
    tick(db)
    db.execute("insert into show (pk_show, str_name) values ('other', 'other')")
    db.execute("insert into subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)"
               " select 'other', pk_alloc, 'other', int_size, int_burst from subscription")  # fmt: skip
    look = "select share, entitlement, averaging_window = '0' from maestro.show_share where pk_show = %s"
    assert db.execute(look, [SHOW]).fetchone() == (1, 1, True)
    db.execute("update job set pk_show = 'other' where str_name = 'job'")
    db.execute("update subscription set int_size = 3 * int_size where pk_show = 'other'")
    assert db.execute(look, ["other"]).fetchone()[1] == one(db, "select 0.75")  # type: ignore[index]


def test_a_tick_s_row_says_what_it_booked_warm_and_what_no_layer_can_use(db: Db) -> None:
    add_host(db, "host1", cores=8, mem_gib=3)
    add_job(db, "job", {"render": 10})
    done = tick(db)
    assert done["committed"] == 3
    assert done["locality"] == {"live_warm": 0, "cache_warm": 0, "cold": 3}
    assert done["stranded"] == {ALLOC: 5}
    assert done["warnings"] == []
    assert accounting(db) == []


def test_a_layer_that_is_planned_and_never_booked_is_named(db: Db) -> None:
    db.execute("update maestro.setting set value = '3' where name = 'plan_zero_warn_ticks'")
    add_host(db, "host1", cores=8)
    job = add_job(db, "job", {"render": 2})
    db.execute("create function refuse() returns trigger language plpgsql as $$ begin raise exception 'never'; end $$")
    db.execute("create trigger refuse before update on frame for each row execute function refuse()")
    warnings = [one(db, "select maestro_tick()")["warnings"] for _ in range(3)]
    assert warnings[:2] == [[], []]
    assert [each["what"] for each in warnings[2]] == [
        "layer " + one(db, "select pk_layer from layer where pk_job = %s", job)
    ]
    db.execute("drop trigger refuse on frame")
    assert tick(db)["committed"] == 2
    assert one(db, "select count(*) from maestro.plan_zero") == 0


def test_a_layer_s_rank_its_terms_and_who_was_served_before_it_are_one_look(db: Db) -> None:
    """P38."""
    add_host(db, "host1", cores=4)
    low, high = add_job(db, "low", {"render": 10}), add_job(db, "high", {"render": 10})
    db.execute("update job_resource set int_priority = case pk_job when %s then 300 else 100 end", [high])
    tick(db)
    look = "select rank, priority, draw_share, show_tier, served_before from maestro.layer_rank where pk_job = %s"
    (rank, priority, share, tier, before) = db.execute(look, [low]).fetchone() or ()
    assert (rank, priority, share, tier) == (2, 100, 0.25, one(db, "select int_cores / int_size::numeric"
                                                                   " from subscription"))  # fmt: skip
    order = column(
        db, "select layers[l] from maestro.tick_plan, unnest(layer) with ordinality as u (l, n)"
        " group by layers[l] order by min(n)",
    )  # fmt: skip
    own = one(db, "select pk_layer from layer where pk_job = %s", low)
    assert before == (order[: order.index(own)] if own in order else order)
    assert (db.execute(look, [high]).fetchone() or ())[:3] == (1, 300, 0.75)
