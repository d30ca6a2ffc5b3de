"""Limits: what counts as use, when they block, what happens when reports stop, and how a shortage passes."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from tests.db.farm import accounting, add_host, add_job, call, column, frames_of, layer_of, one, running, state, tick

Db = psycopg.Connection[Any]


def add_limit(db: Db, name: str, most: int | None, layers: list[str], **columns: Any) -> str:
    """A limit bound to layers; its key is its name."""
    db.execute("insert into limit_record (pk_limit_record, str_name, int_max_value) values (%s, %s, %s)",
               [name, name, most])  # fmt: skip
    for column_name, value in columns.items():
        db.execute(f"update limit_record set {column_name} = %s where str_name = %s", [value, name])  # type: ignore[arg-type]
    for layer in layers:
        db.execute("insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values (%s, %s, %s)",
                   [f"{name} {layer}"[:36], layer, name])  # fmt: skip
    return name


def one_job(db: Db, frames: int = 20) -> tuple[str, str]:
    """A job of one layer: its keys."""
    job = add_job(db, "job", {"render": frames})
    return job, layer_of(db, job, "render")


def usage(db: Db, name: str, hosts: dict[str, int], **more: Any) -> Any:
    return call(
        db, "report_limit_usage",
        {"limit": name, "hosts": [{"host": host, "tokens": count} for host, count in hosts.items()], **more},
    )  # fmt: skip


def shift(db: Db, seconds: int) -> None:
    """Let time pass: what is remembered of the past moves back."""
    db.execute("update limit_record set ts_reported = ts_reported - make_interval(secs => %s)", [seconds])
    db.execute("update limit_usage set ts_watermark = ts_watermark - make_interval(secs => %s),"
               " ts_updated = ts_updated - make_interval(secs => %s)", [seconds, seconds])  # fmt: skip
    db.execute("update proc set ts_dispatched = ts_dispatched - make_interval(secs => %s)", [seconds])
    db.execute("update frame set ts_started = ts_started - make_interval(secs => %s)", [seconds])
    db.execute("update layer set ts_start_after = ts_start_after - make_interval(secs => %s)", [seconds])
    db.execute("update maestro.limit_probe set denied_at = denied_at - make_interval(secs => %s),"
               " next_at = next_at - make_interval(secs => %s)", [seconds, seconds])  # fmt: skip


def finish(db: Db, procs: list[tuple[str, str]], exit_status: int = 0) -> None:
    host = one(db, "select min(str_name) from host")
    call(
        db, "report_completion",
        [
            {"host": {"name": host}, "exit_status": exit_status, "run_time": 5,
             "frame": {"resource_id": proc, "frame_id": frame}}
            for proc, frame in procs
        ],
    )  # fmt: skip


def test_without_reports_every_running_frame_counts(db: Db) -> None:
    add_host(db, "host1", cores=16)
    _, layer = one_job(db)
    add_limit(db, "licence", 3, [layer])
    assert tick(db)["committed"] == 3
    shift(db, 100000)
    done = tick(db)
    assert (done["committed"], done["waiting"]["no_license"]) == (0, 17)
    assert accounting(db) == []


def test_a_report_settles_what_others_use_and_what_started_since_is_added(db: Db) -> None:
    for number in range(2):
        add_host(db, f"host{number}", cores=6)
    _, layer = one_job(db)
    add_limit(db, "licence", 10, [layer])
    usage(db, "licence", {"artist7": 4})
    assert tick(db)["committed"] == 6
    shift(db, 600)
    usage(db, "licence", {"artist7": 2, "host0": 6})  # the six are in the report by now
    assert tick(db)["committed"] == 2
    assert tick(db)["committed"] == 0
    shift(db, 600)
    usage(db, "licence", {})
    assert one(db, "select count(*) from limit_host") == 0
    assert tick(db)["committed"] == 4  # onto the last four cores; an empty report frees all ten
    assert accounting(db) == []


def test_a_frame_that_started_shortly_before_a_report_counts_beside_it(db: Db) -> None:
    for number in range(2):
        add_host(db, f"host{number}", cores=6)
    _, layer = one_job(db)
    add_limit(db, "licence", 6, [layer])
    assert tick(db)["committed"] == 6
    shift(db, 60)  # within the settle window of 120 s
    usage(db, "licence", {})
    assert tick(db)["committed"] == 0
    db.execute("update maestro.setting set value = '30' where name = 'limit_settle_window_seconds'")
    assert tick(db)["committed"] == 6
    assert accounting(db) == []


def test_a_host_limit_counts_machines_and_packs_them(db: Db) -> None:
    for number in range(5):
        add_host(db, f"host{number}", cores=4)
    _, layer = one_job(db)
    add_limit(db, "licence", 2, [layer], str_type="HOST")
    assert tick(db)["committed"] == 8
    assert one(db, "select count(distinct pk_host) from proc") == 2
    assert accounting(db) == []


def test_a_machine_that_holds_the_licence_already_needs_no_new_one(db: Db) -> None:
    for number in range(5):
        add_host(db, f"host{number}", cores=4)
    _, layer = one_job(db)
    add_limit(db, "licence", 2, [layer], str_type="HOST")
    usage(db, "licence", {"HOST3.studio.lan": 1, "artist7": 1})
    assert tick(db)["committed"] == 4
    assert column(db, "select distinct str_host from frame where str_state = 'RUNNING'") == ["host3"]
    assert accounting(db) == []


def test_a_soft_value_stops_new_machines_before_the_maximum(db: Db) -> None:
    for number in range(5):
        add_host(db, f"host{number}", cores=4)
    _, layer = one_job(db)
    add_limit(db, "licence", 4, [layer], str_type="HOST", int_soft_value=1)
    assert tick(db)["committed"] == 4
    assert accounting(db) == []


@pytest.mark.parametrize("enforcement", ["ADVISORY", "DISABLED"])
def test_only_enforced_limits_block(db: Db, enforcement: str) -> None:
    add_host(db, "host1", cores=8)
    _, layer = one_job(db)
    add_limit(db, "licence", 0, [layer], str_enforcement=enforcement)
    assert tick(db)["committed"] == 8
    assert accounting(db) == []


@pytest.mark.parametrize(("policy", "committed"), [(None, 8), ("open", 8), ("closed", 0)])
def test_a_limit_whose_reports_stopped_is_open_or_closed_as_it_says_and_is_named(
    db: Db, policy: str | None, committed: int
) -> None:
    add_host(db, "host1", cores=8)
    _, layer = one_job(db)
    add_limit(db, "licence", 2, [layer], int_report_ttl=900)
    if policy:
        db.execute("insert into maestro.limit_policy values ('licence', %s)", [policy])
    usage(db, "licence", {"artist7": 2})
    shift(db, 880)
    assert tick(db)["committed"] == 0
    assert tick(db)["warnings"] == []
    shift(db, 21)
    done = tick(db)
    assert done["committed"] == committed
    assert [warning["what"] for warning in done["warnings"]] == ["limit licence"]
    assert ("closed" if policy == "closed" else "open") in done["warnings"][0]["message"]
    shift(db, 10)
    usage(db, "licence", {"artist7": 2})
    done = tick(db)
    assert (done["committed"], done["warnings"]) == (0, [])
    assert accounting(db) == []


def test_a_time_to_live_of_zero_is_never_over(db: Db) -> None:
    add_host(db, "host1", cores=8)
    _, layer = one_job(db)
    add_limit(db, "licence", 2, [layer], int_report_ttl=0)
    usage(db, "licence", {"artist7": 2})
    shift(db, 1000000)
    assert tick(db)["committed"] == 0


def test_reports_that_come_too_soon_or_too_late_or_name_nothing_known_are_told_so(db: Db) -> None:
    add_limit(db, "licence", 2, [])
    now = time.time()
    assert usage(db, "licence", {"a": 1}, captured_at=now - 30, source="reporter") == {
        "applied": ["licence"], "unknown": [], "skipped": [],
    }  # fmt: skip
    assert usage(db, "licence", {}, captured_at=now - 30)["skipped"] == [{"limit": "licence", "reason": "OUT_OF_ORDER"}]
    assert usage(db, "licence", {}, captured_at=now - 20)["skipped"] == [{"limit": "licence", "reason": "RATE_LIMITED"}]
    assert usage(db, "nothing", {})["unknown"] == ["nothing"]
    shift(db, 10)
    assert usage(db, "licence", {"a": 2, "b.studio.lan": 5}, captured_at=now - 5)["applied"] == ["licence"]
    assert db.execute("select int_settled_usage, int_settled_hosts from limit_usage").fetchall() == [(7, 2)]
    assert column(db, "select str_host_name from limit_host order by 1") == ["a", "b"]


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"hosts": []}, "limit is missing"),
        ({"limit": "licence", "captured_at": "yesterday or so"}, "captured_at cannot be"),
        ({"limit": "licence", "hosts": [{"host": "a", "tokens": 0}]}, "tokens cannot be 0"),
        ({"limit": "licence", "hosts": "a, b"}, "hosts cannot be string"),
        ({"limit": "licence", "hosts": [{"tokens": 1}]}, "host is missing"),
    ],
)
def test_a_report_that_cannot_be_right_is_refused_whole(db: Db, report: dict[str, Any], message: str) -> None:
    add_limit(db, "licence", 2, [])
    with pytest.raises(psycopg.Error, match=message) as caught:
        call(db, "report_limit_usage", [{"limit": "licence", "hosts": [{"host": "x"}]}, report])
    assert caught.value.sqlstate == "QM001"
    assert one(db, "select count(*) from limit_host") == 0


def test_the_commit_trims_to_the_number_that_is_left_then(db: Db) -> None:
    hosts = [add_host(db, f"host{number}", cores=4) for number in range(3)]
    _, layer = one_job(db)
    add_limit(db, "frames", 5, [layer])
    add_limit(db, "machines", 2, [layer], str_type="HOST")
    usage(db, "frames", {"artist7": 1})  # after the snapshot that this plan was made from
    slots = [1, 2, 3, 1, 2, 3, 1, 2]
    answer = one(
        db,
        "select maestro.commit_plan(1, now(), array[%s], %s::text[], %s::int[], %s::int[], %s::int[], %s::bigint[],"
        " %s::int[], %s::bigint[])",
        layer, hosts, [1] * 8, slots, [100] * 8, [1024] * 8, [0] * 8, [0] * 8,
    )  # fmt: skip
    # Four frames are left, and the third machine is one too many.
    assert (answer["committed"], answer["dropped"], sorted(answer["lost"])) == (3, {"limit": 5}, [3, 5, 6, 7, 8])
    assert one(db, "select count(distinct pk_host) from proc") == 2


def test_a_denied_licence_spends_no_retry_and_is_tried_by_one_frame_a_delay(db: Db) -> None:
    add_host(db, "host1", cores=8)
    job, layer = one_job(db, 30)
    add_limit(db, "licence", None, [], int_exit_status=330, int_delay_minutes=2)
    assert tick(db)["committed"] == 8
    finish(db, running(db, job), 330)
    done = tick(db)
    assert (done["drained"], done["committed"]) == (8, 0)
    assert one(db, "select distinct int_exit_status from frame where int_exit_status <> -1") == 286
    assert column(db, "select str_source from layer_limit where pk_layer = %s", layer) == ["AUTO"]
    assert "330" in one(db, "select str_start_after_reason from layer")
    assert "start after" in str(column(db, "select reasons from maestro.waitlist"))
    for _ in range(3):  # the shortage lasts
        shift(db, 119)
        assert tick(db)["committed"] == 0
        shift(db, 2)
        assert tick(db)["committed"] == 1
        assert tick(db)["committed"] == 0
        finish(db, running(db, job), 330)
        assert tick(db)["committed"] == 0
    shift(db, 121)
    assert tick(db)["committed"] == 1
    shift(db, 5)
    assert tick(db)["committed"] == 0
    finish(db, running(db, job))  # it got its licence: the shortage is over
    assert tick(db)["committed"] == 8
    assert one(db, "select count(*) from maestro.limit_probe") == 0
    assert one(db, "select max(int_retries) from frame") == 0
    assert one(db, "select count(*) from frame where str_state = 'DEAD'") == 0
    assert accounting(db) == []


def test_a_frame_that_had_its_licence_before_the_shortage_does_not_end_the_back_off(db: Db) -> None:
    add_host(db, "host1", cores=4)
    job, _ = one_job(db)
    add_limit(db, "licence", None, [], int_exit_status=330, int_delay_minutes=2)
    tick(db)
    first, *others = running(db, job)
    finish(db, others, 330)
    tick(db)
    finish(db, [first])
    assert tick(db)["committed"] == 0
    shift(db, 121)
    assert tick(db)["committed"] == 1
    assert accounting(db) == []


def test_an_operator_s_later_start_is_not_brought_forward_by_a_denial(db: Db) -> None:
    add_host(db, "host1", cores=1)
    job, layer = one_job(db)
    add_limit(db, "licence", None, [], int_exit_status=330, int_delay_minutes=2, b_auto_tag=False)
    tick(db)
    db.execute("update layer set ts_start_after = now() + interval '1 hour'")
    finish(db, running(db, job), 330)
    tick(db)
    assert one(db, "select ts_start_after > now() + interval '50 minutes' from layer")
    assert one(db, "select count(*) from layer_limit where pk_layer = %s", layer) == 0
    assert state(db, frames_of(db, job)[0]) == "WAITING"
    assert accounting(db) == []


def test_limits_that_nobody_uses_cost_no_query(db: Db) -> None:
    add_host(db, "host1", cores=4)
    one_job(db)
    tick(db)
    assert db.execute("select * from maestro.limit_headrooms(now())").fetchall() == []
