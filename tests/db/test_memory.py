"""Memory that runs out: the frame asks for more first, its layer after a streak, and a host in need is saved."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.db.farm import (
    GIB,
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
    state,
    tick,
)

Db = psycopg.Connection[Any]
INCREASE = 2 * GIB


def _fail(db: Db, host: str, frames: list[str], mem: int = GIB) -> None:
    """Memory failures of these frames, reported at once."""
    db.execute("update service set int_min_memory_increase = %s", [INCREASE])
    reports = [completion(db, book(db, frame, host, mem=mem), frame, 33) for frame in frames]
    call(db, "report_completion", reports)
    assert call(db, "drain")["drained"] == len(frames)


def _layer(db: Db) -> int:
    return int(one(db, "select int_mem_min from layer"))


def _ask(db: Db, frame: str) -> int:
    return int(call(db, "frame_memory_ask", frame))


def test_an_outlier_raises_only_its_own_frame_however_often_it_fails(db: Db) -> None:
    """P57."""
    host = add_host(db, "h", mem_gib=256)
    outlier, other = frames_of(db, add_job(db, "j", {"a": 2}))
    for failures in range(1, 6):
        _fail(db, host, [outlier], mem=_ask(db, outlier))
        assert _ask(db, outlier) == GIB + failures * INCREASE
    assert (_layer(db), _ask(db, other)) == (GIB, GIB)
    assert accounting(db) == []


def test_five_reports_at_once_raise_the_layer_once(db: Db) -> None:
    """P57."""
    host = add_host(db, "h", mem_gib=256)
    frames = frames_of(db, add_job(db, "j", {"a": 8}))
    _fail(db, host, frames[:5])
    assert _layer(db) == GIB + INCREASE
    assert one(db, "select count(*) from maestro.layer_streak") == 0
    # What was booked with less than the layer asks for now says nothing about what it asks for now.
    _fail(db, host, frames[5:], mem=GIB)
    assert _layer(db) == GIB + INCREASE
    assert accounting(db) == []


def test_the_streak_survives_restarts_and_counts_different_frames(db: Db, dsn: str) -> None:
    """P57: what counts is in the database, so it does not matter who takes the reports."""
    host = add_host(db, "h", mem_gib=256)
    frames = frames_of(db, add_job(db, "j", {"a": 4}))
    for frame in (frames[0], frames[0], frames[1]):
        with psycopg.connect(dsn, autocommit=True) as other:
            _fail(other, host, [frame])
        assert _layer(db) == GIB
    _fail(db, host, [frames[2]])
    assert _layer(db) == GIB + INCREASE
    assert accounting(db) == []


def test_a_success_with_the_layers_memory_ends_the_streak_and_one_with_its_own_does_not(db: Db) -> None:
    """P57: a layer that always fails at first is raised, though each frame succeeds at its second run."""
    host = add_host(db, "h", mem_gib=256)
    frames = frames_of(db, add_job(db, "j", {"a": 8}))
    _fail(db, host, frames[:2])
    complete(db, book(db, frames[2], host), frames[2])
    _fail(db, host, frames[3:5])
    assert _layer(db) == GIB
    for frame in frames[3:5]:
        complete(db, book(db, frame, host, mem=_ask(db, frame)), frame)
    _fail(db, host, frames[5:6])
    assert _layer(db) == GIB + INCREASE
    # Who has succeeded asks for no more than the layer.
    assert one(db, "select count(*) from maestro.frame_memory where pk_frame = any(%s)", frames[3:5]) == 0
    assert accounting(db) == []


def test_a_success_and_failures_that_arrive_together_count_in_their_order(db: Db) -> None:
    host = add_host(db, "h", mem_gib=256)
    frames = frames_of(db, add_job(db, "j", {"a": 8}))
    procs = {frame: book(db, frame, host) for frame in frames}
    statuses = [33, 33, 0, 33, 33]
    reports = [completion(db, procs[f], f, status) for f, status in zip(frames, statuses, strict=False)]
    call(db, "report_completion", reports)
    call(db, "drain")
    assert _layer(db) == GIB
    assert one(db, "select cardinality(frames) from maestro.layer_streak") == 2


def test_an_ask_is_forgotten_after_its_time(db: Db) -> None:
    host = add_host(db, "h", mem_gib=256)
    frame = frames_of(db, add_job(db, "j", {"a": 2}))[0]
    _fail(db, host, [frame])
    db.execute("update maestro.frame_memory set updated_at = now() - interval '7 hours'")
    assert _ask(db, frame) == GIB


def _reserved(db: Db) -> list[int]:
    """What the procs reserve, GiB."""
    return column(db, "select (int_mem_reserved / 1048576)::int from proc order by 1")


def test_a_frame_that_failed_for_memory_runs_with_what_it_asks_for_beside_the_rest_of_its_layer(db: Db) -> None:
    host = add_host(db, "h", cores=4, mem_gib=64)
    frames = frames_of(db, add_job(db, "j", {"a": 3}))
    _fail(db, host, frames[1:2])
    assert tick(db)["committed"] == 3
    assert _reserved(db) == [1, 1, 3]
    assert one(db, "select int_mem_reserved from proc where pk_frame = %s", frames[1]) == 3 * GIB
    assert accounting(db) == []
    for proc, frame in db.execute("select pk_proc, pk_frame from proc").fetchall():
        complete(db, proc, frame)
    assert one(db, "select int_mem_idle = int_mem from host")
    assert accounting(db) == []


def test_a_frame_never_runs_with_less_than_it_asks_for_and_says_what_it_waits_for(db: Db) -> None:
    host = add_host(db, "h", cores=8, mem_gib=4)
    frames = frames_of(db, add_job(db, "j", {"a": 9}))
    book(db, frames[0], host)
    _fail(db, host, frames[1:2], mem=2 * GIB)
    assert _ask(db, frames[1]) == 4 * GIB
    done = tick(db)
    # The rest of its layer is not held up, nor sized by it.
    assert (done["committed"], done["dropped"]) == (3, {})
    assert _reserved(db) == [1, 1, 1, 1]
    assert state(db, frames[1]) == "WAITING"
    (reasons,) = column(db, "select reasons from maestro.waitlist")
    assert {"reason": "failed for memory: idle memory", "hosts": 1} in reasons
    for proc, frame in db.execute("select pk_proc, pk_frame from proc").fetchall():
        complete(db, proc, frame)
    db.execute("update job_resource set int_max_cores = 100")
    for _ in range(9):
        tick(db)
        ((proc, frame),) = db.execute("select pk_proc, pk_frame from proc").fetchall()
        assert (one(db, "select int_mem_reserved from proc") == 4 * GIB) == (frame == frames[1])
        complete(db, proc, frame)
        if not one(db, "select count(*) from frame where str_state = 'WAITING'"):
            break
    assert {state(db, frame) for frame in frames} == {"SUCCEEDED"}
    assert accounting(db) == []


def test_a_frame_that_asks_for_half_a_host_gets_it_beside_a_flood_of_its_own_layer(db: Db) -> None:
    host = add_host(db, "h", cores=8, mem_gib=8)
    frames = frames_of(db, add_job(db, "j", {"a": 200}))
    for name in ("reservation_block_seconds", "layer_host_max_frac"):
        db.execute("update maestro.setting set value = '0' where name = %s", [name])
    _fail(db, host, frames[:1], mem=3 * GIB)
    for frame in frames[1:9]:
        book(db, frame, host)
    for _ in range(40):
        proc, frame = db.execute("select pk_proc, pk_frame from proc order by pk_proc limit 1").fetchone() or ("", "")
        complete(db, proc, frame)
        tick(db)
        db.execute("update maestro.tick set started_at = started_at - interval '1 second'")
        if state(db, frames[0]) == "RUNNING":
            break
    assert one(db, "select int_mem_reserved from proc where pk_frame = %s", frames[0]) == 5 * GIB
    assert accounting(db) == []


def test_a_frame_that_would_ask_for_more_than_any_host_has_is_tried_with_the_whole_of_the_largest(db: Db) -> None:
    host = add_host(db, "h", mem_gib=8)
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    _fail(db, host, [frame], mem=7 * GIB)
    assert _ask(db, frame) == 8 * GIB
    _fail(db, host, [frame], mem=8 * GIB)
    assert _ask(db, frame) == 10 * GIB
    tick(db)
    assert column(db, "select reason from maestro.waitlist") == ["no_host"]


def _packed(db: Db, reserved: list[int], **host: Any) -> tuple[str, list[tuple[str, str]]]:
    """A 10-GiB host and procs on it with these reservations (GiB): pk_host, [(proc, frame)]."""
    pk_host = add_host(db, "h", mem_gib=10)
    frames = frames_of(db, add_job(db, "j", {"a": len(reserved)}))
    return pk_host, [(book(db, f, pk_host, mem=gib * GIB), f) for f, gib in zip(frames, reserved, strict=True)]


def _report(db: Db, runs: list[dict[str, Any]], **host: Any) -> int:
    """A report of the 10-GiB host; returns the kills ordered."""
    told = {"total_mem": str(10 * GIB), "free_mem": str(5 * GIB), "total_swap": str(10 * GIB), "free_swap": "10485760"}
    return int(call(db, "report_status", host_report("h", runs, **{**told, **host}))["kills"])


IN_NEED = {"free_mem": str(GIB // 2), "free_swap": str(8 * GIB)}


def test_a_frame_that_grows_takes_what_others_have_reserved_and_never_used(db: Db) -> None:
    _, booked = _packed(db, [2, 6, 2])
    use = [4 * GIB, GIB, 2 * GIB]
    _report(db, [run(*each, rss=rss) for each, rss in zip(booked, use, strict=True)])
    reserved = [one(db, "select int_mem_reserved from proc where pk_proc = %s", proc) for proc, _ in booked]
    assert reserved == [4 * GIB, 4 * GIB, 2 * GIB]
    assert one(db, "select int_mem_idle from host") == 0
    assert accounting(db) == []


def test_a_host_in_need_loses_no_more_frames_than_it_must_and_none_within_its_reservation(db: Db) -> None:
    """P58."""
    _, booked = _packed(db, [1, 1, 1, 6])
    swap = [GIB // 4, 3 * GIB // 2, GIB // 4, 4 * GIB]
    rss = [2 * GIB, 2 * GIB, 2 * GIB, GIB]
    runs = [run(*each, rss=r, used_swap_memory=str(s)) for each, r, s in zip(booked, rss, swap, strict=True)]
    assert _report(db, runs, **IN_NEED) == 1
    assert column(db, "select pk_proc from maestro.host_order where kind = 'kill'") == [booked[1][0]]
    # Said again, ordered once.
    _report(db, runs, **IN_NEED)
    assert one(db, "select count(*) from maestro.host_order") == 1
    assert accounting(db) == []


def test_who_is_killed_for_memory_fails_for_memory_and_spends_no_retry(db: Db) -> None:
    pk_host, booked = _packed(db, [1])
    db.execute("update job set int_max_retries = 0")
    proc, frame = booked[0]
    assert _report(db, [run(proc, frame, rss=9 * GIB, used_swap_memory=str(2 * GIB))], **IN_NEED) == 1
    complete(db, proc, frame, 1, 9)
    assert db.execute("select str_state, int_exit_status, int_retries from frame").fetchone() == ("WAITING", 33, 0)
    assert _ask(db, frame) > GIB
    assert one(db, "select count(*) from maestro.memory_kill") == 0
    # The next run is another one.
    complete(db, book(db, frame, pk_host), frame, 1)
    assert one(db, "select int_exit_status from frame") == 1
    assert accounting(db) == []


@pytest.mark.parametrize(
    "calm", [{"free_mem": str(2 * GIB)}, {"free_swap": str(10 * GIB)}, {"total_swap": "0", "free_swap": "0"}]
)
def test_a_host_that_is_full_or_swaps_but_not_both_kills_nobody(db: Db, calm: dict[str, str]) -> None:
    _, booked = _packed(db, [1, 1])
    runs = [run(*each, rss=3 * GIB, used_swap_memory=str(GIB)) for each in booked]
    assert _report(db, runs, **{**IN_NEED, **calm}) == 0
    assert accounting(db) == []


def test_a_persons_machine_kills_nobody(db: Db) -> None:
    _, booked = _packed(db, [1])
    db.execute("update host set b_nimby = true")
    assert _report(db, [run(*booked[0], rss=9 * GIB, used_swap_memory=str(2 * GIB))], **IN_NEED) == 0


def test_a_frame_far_over_its_reservation_is_killed_where_that_is_asked_for(db: Db) -> None:
    _, booked = _packed(db, [2, 2, 2])
    use = [int(2.9 * GIB), int(3.1 * GIB), GIB]
    runs = [run(*each, rss=rss) for each, rss in zip(booked, use, strict=True)]
    assert _report(db, runs) == 0
    db.execute("update proc set int_mem_reserved = 2097152")
    db.execute("update maestro.setting set value = '0.5' where name = 'oom_frame_overboard_allowed_threshold'")
    assert _report(db, runs) == 1
    assert column(db, "select pk_proc from maestro.memory_kill") == [booked[1][0]]
    # It does not grow on its way out.
    assert one(db, "select int_mem_reserved from proc where pk_proc = %s", booked[1][0]) == 2 * GIB
    assert accounting(db) == []


def _told(db: Db, at: str, free_gib: float) -> None:
    report = host_report("h", total_mem=str(10 * GIB), free_mem=str(int(free_gib * GIB)))
    db.execute("select maestro.report_status(%s::jsonb, now() + %s::interval)", [json.dumps(report), at])


def test_a_host_that_leaks_memory_is_drained_before_it_hurts_its_frames(db: Db) -> None:
    _packed(db, [2])
    db.execute("update maestro.setting set value = '2048' where name = 'host_leak_mb'")
    for minute, free in enumerate([7.0, 5.0, 5.0, 7.0, 5.0, 5.0]):
        _told(db, f"{minute} min", free)
        db.execute("select maestro.sweep_hosts(now() + %s::interval)", [f"{minute} min"])
        # Once well again, it counts anew.
        assert one(db, "select count(*) from maestro.host_drain") == 0
    _told(db, "6 min", 5.0)
    db.execute("select maestro.sweep_hosts(now() + '6 min')")
    assert one(db, "select reason from maestro.host_drain") == "misses 3072 MiB of memory that no frame uses"
    assert one(db, "select str_lock_state from host") == "LOCKED"
    assert one(db, "select kind from maestro.fault") == "memory leak"
    assert one(db, "select count(*) from proc") == 1
    assert accounting(db) == []


def test_a_leak_is_nobodys_business_while_the_setting_is_0(db: Db) -> None:
    _packed(db, [2])
    for minute in range(4):
        _told(db, f"{minute} min", 1.0)
        db.execute("select maestro.sweep_hosts(now() + %s::interval)", [f"{minute} min"])
    assert one(db, "select count(*) from maestro.host_drain") == 0


def _disk(db: Db, free_percent: int) -> str:
    call(db, "report_status", host_report("h", total_mcp=str(100 * GIB), free_mcp=str(free_percent * GIB)))
    return str(one(db, "select str_state from host_stat"))


def test_a_full_temporary_disk_is_in_repair_until_it_has_room_again(db: Db) -> None:
    add_host(db, "h")
    assert [_disk(db, free) for free in (50, 4, 4, 50)] == ["UP", "REPAIR", "REPAIR", "UP"]
    assert one(db, "select count(*) from comments") == 0
    # Who was sent there by a person comes back by a person.
    db.execute("update host_stat set str_state = 'REPAIR'")
    assert _disk(db, 50) == "REPAIR"
    db.execute("update host_stat set str_state = 'UP'")
    db.execute("update maestro.setting set value = '-1' where name = 'min_available_temp_storage_percentage'")
    assert _disk(db, 1) == "UP"
