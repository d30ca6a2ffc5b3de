"""The sweep: what lost signals leave behind is put right, and each correction is told."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.db.farm import (
    Db,
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
    uncap,
)


@pytest.fixture(autouse=True)
def swept_before(db: Db) -> None:
    """Every part of the sweep is due: the dearer ones wait one period in a new database."""
    call(db, "sweep", now(db, -3600))


def now(db: Db, seconds: float = 0) -> datetime:
    moment: datetime = one(db, "select now()")
    return moment + timedelta(seconds=seconds)


def faults(db: Db) -> list[str]:
    return column(db, "select kind from maestro.fault order by kind")


def test_a_silent_host_goes_down_and_its_frames_wait_without_a_retry_spent(db: Db) -> None:
    silent, lively = add_host(db, "silent"), add_host(db, "lively")
    a, b = frames_of(db, add_job(db, "j", {"a": 2}))
    book(db, a, silent)
    proc = book(db, b, lively)
    later = now(db, 301)
    call(db, "report_status", host_report("lively", [run(proc, b)]), later)
    answer = call(db, "sweep", later)
    assert (answer["hosts_down"], answer["orphans"], answer["errors"]) == (1, 0, [])
    outcome = "select str_state, int_exit_status, int_retries from frame where pk_frame = %s"
    assert db.execute(outcome, [a]).fetchone() == ("WAITING", 399, 0)
    assert state(db, b) == "RUNNING"
    assert one(db, "select str_state from host_stat where pk_host = %s", silent) == "DOWN"
    assert faults(db) == ["host down"]
    assert accounting(db) == []


def test_silence_that_nobody_could_hear_is_not_held_against_hosts(db: Db) -> None:
    """The farm keeps its frames over an outage of database or launchers."""
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    book(db, frame, pk_host)
    db.execute("insert into maestro.launcher (hostname, pid, version, heartbeat_at) values ('l', 1, '1', now())")

    def sweep(seconds: float, heard: bool) -> int:
        if heard:
            db.execute("update maestro.launcher set heartbeat_at = %s", [now(db, seconds)])
        return int(call(db, "sweep", now(db, seconds))["hosts_down"])

    assert sweep(0, heard=True) == 0
    assert sweep(400, heard=False) == 0      # launchers are away
    assert sweep(410, heard=True) == 0       # back; hosts get their time to report
    for seconds in range(440, 700, 30):
        assert sweep(seconds, heard=True) == 0
    assert sweep(715, heard=True) == 1       # they had it
    assert accounting(db) == []


def test_orphans_are_freed_together_however_many_cannot_be_reached(db: Db) -> None:
    uncap(db)
    hosts = [add_host(db, f"h{n}", cores=64, mem_gib=256) for n in range(5)]
    job = add_job(db, "j", {"a": 300})
    assert tick(db)["committed"] == 300
    db.execute("delete from maestro.launch")
    db.execute("update proc set ts_ping = now() - interval '400 s' where pk_host <> %s", [hosts[0]])
    kept = one(db, "select count(*) from proc where pk_host = %s", hosts[0])
    assert call(db, "sweep", now(db, 10))["orphans"] == 300 - kept
    assert one(db, "select count(*) from proc") == kept
    assert one(db, "select count(*) from maestro.host_order where kind = 'kill'") == 300 - kept
    statuses = "select distinct int_exit_status from frame where str_state = 'WAITING' and pk_job = %s"
    assert column(db, statuses, job) == [301]
    assert accounting(db) == []


def test_a_proc_whose_completion_is_in_the_inbox_is_no_orphan(db: Db) -> None:
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, add_host(db, "h"))
    db.execute("update proc set ts_ping = now() - interval '1 h'")
    call(db, "report_completion", completion(db, proc, frame))
    call(db, "sweep", now(db))
    call(db, "drain")
    assert state(db, frame) == "SUCCEEDED"


def test_a_restarted_rqd_gives_back_what_it_forgot_and_keeps_what_it_still_runs(db: Db) -> None:
    """P05."""
    pk_host = add_host(db, "h")
    kept, lost = frames_of(db, add_job(db, "j", {"a": 2}))
    proc_kept, _ = book(db, kept, pk_host), book(db, lost, pk_host)
    call(db, "report_startup", host_report("h"), now(db, 5))
    call(db, "report_status", host_report("h", [run(proc_kept, kept)]), now(db, 10))
    call(db, "sweep", now(db, 12))
    assert state(db, lost) == "RUNNING"
    call(db, "report_status", host_report("h", [run(proc_kept, kept)]), now(db, 25))
    call(db, "sweep", now(db, 26))
    assert (state(db, kept), state(db, lost)) == ("RUNNING", "WAITING")
    assert one(db, "select count(*) from maestro.host_boot") == 0
    assert accounting(db) == []


def test_running_frames_and_procs_without_each_other_are_told_and_freed(db: Db) -> None:
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 3})
    a, b, c = frames_of(db, job)
    for frame in (a, b, c):
        book(db, frame, pk_host)
    # A frame set back by hand keeps a proc; a proc released by hand leaves a frame; c is as it should be.
    db.execute("update frame set str_state = 'WAITING' where pk_frame = %s", [a])
    call(db, "release_procs", column(db, "select pk_proc from proc where pk_frame = %s", b))
    db.execute("update frame set ts_started = now() - interval '10 min' where pk_frame = %s", [b])
    db.execute("delete from proc where pk_frame = %s and false", [c])
    call(db, "sweep", now(db))
    # The numbers agree, one of each kind; the next proc to go makes them differ.
    call(db, "release_procs", column(db, "select pk_proc from proc where pk_frame = %s", c))
    db.execute("update frame set ts_started = now() - interval '10 min' where pk_frame = %s", [c])
    call(db, "sweep", now(db, 10))
    assert [state(db, f) for f in (a, b, c)] == ["WAITING"] * 3
    assert faults(db) == ["orphan frame", "orphan frame", "orphan proc"]
    assert accounting(db) == []


def test_a_job_of_which_nothing_is_left_finishes_in_the_next_tick(db: Db) -> None:
    """P09: whatever signal was lost."""
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2})
    for frame in frames_of(db, job):
        complete(db, book(db, frame, pk_host), frame)
    db.execute("update job set str_state = 'PENDING', str_visible_name = 'j', ts_stopped = null")
    tick(db)
    assert one(db, "select str_state from job") == "FINISHED"
    assert faults(db) == ["job left open"]


def test_frames_that_wait_for_nothing_are_freed(db: Db) -> None:
    job = add_job(db, "j", {"a": 2})
    db.execute("update frame set int_depend_count = 3 where int_number = 2")
    assert one(db, "select int_depend_count from job_stat") == 1
    assert call(db, "sweep", now(db))["depends_recovered"] == 1
    assert column(db, "select str_state from frame where pk_job = %s", job) == ["WAITING", "WAITING"]
    assert faults(db) == ["frame waited for nothing"]
    assert accounting(db) == []


def test_history_holds_each_run_with_its_end_and_no_undone_launch(db: Db) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    complete(db, book(db, frame, pk_host), frame, 1)
    call(db, "unbook", [book(db, frame, pk_host)], 299)
    proc = book(db, frame, pk_host)
    call(db, "drain_history")
    rows = "select int_exit_status, int_ts_stopped > 0, str_host from frame_history order by int_ts_stopped = 0"
    assert db.execute(rows).fetchall() == [(1, True, "h"), (-1, False, "h")]
    complete(db, proc, frame, 40000)
    call(db, "drain_history")
    assert db.execute(rows).fetchall() == [(1, True, "h"), (32767, True, "h")]
    call(db, "drain_history")
    assert one(db, "select count(*) from frame_history_queue") == 0


def test_after_a_round_of_the_run_no_event_of_history_waits(db: Db) -> None:
    """P69: a tick's bookings leave events alone; between ticks they become history, all of them."""
    add_host(db, "h", cores=8)
    add_job(db, "j", {"a": 40})
    assert tick(db)["committed"] == 8
    assert one(db, "select count(*) from frame_history_queue") == 8
    assert one(db, "select count(*) from frame_history") == 0
    db.execute("call maestro.run(interval '1 s', interval '10 ms')")
    assert one(db, "select count(*) from frame_history_queue") == 0
    assert one(db, "select count(*) from frame_history") == 8


def test_old_ticks_placements_faults_and_refusals_are_forgotten(db: Db) -> None:
    db.execute(
        "insert into maestro.tick (started_at, status) select now() - make_interval(hours => h), 'planned'"
        " from unnest(array[30, 25, 1]) h"
    )
    db.execute(
        "insert into maestro.tick_plan select tick_id, '{l}', '{h}', '{1}', '{1}', '{1}'"
        " from maestro.tick"
    )
    db.execute("insert into maestro.fault (at, kind, detail) values (now() - interval '2 days', 'k', '{}')")
    db.execute(
        "insert into maestro.launch (tick_id, pk_proc, pk_frame, pk_host, state, created_at)"
        " select 1, 'p', 'f', 'h', s, now() - interval '2 days' from unnest(array['ready', 'refused']) s"
    )
    call(db, "forget_history", now(db))
    assert one(db, "select count(*) from maestro.tick") == 1
    assert one(db, "select count(*) from maestro.placement") == 1
    assert one(db, "select count(*) from maestro.fault") == 0
    assert column(db, "select state from maestro.launch") == ["ready"]


def test_one_part_that_fails_costs_the_others_nothing(db: Db) -> None:
    add_host(db, "h")
    db.execute("drop function maestro.recover_depends(timestamptz)")
    answer = call(db, "sweep", now(db, 301))
    assert answer["hosts_down"] == 1
    assert [e["what"] for e in answer["errors"]] == ["recover_depends"]


def test_a_sweep_with_nothing_to_do_takes_the_same_few_calls_however_large_the_farm(db: Db) -> None:
    db.execute("set track_functions = 'all'")
    calls = []
    for number in range(3):
        for host in range(10 * number):
            add_host(db, f"h{number}x{host}")
        add_job(db, f"j{number}", {f"layer{n}": 20 for n in range(1 + 10 * number)})
        moment = now(db)
        call(db, "sweep", moment)
        before = _calls(db)
        call(db, "sweep", moment)  # nothing is due again
        calls.append(_calls(db) - before)
    assert calls[0] == calls[1] == calls[2] > 0
    assert faults(db) == []


def _calls(db: Db) -> int:
    db.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return int(one(db, "select sum(calls)::bigint from pg_stat_user_functions where schemaname = 'maestro'"))


def test_a_proc_too_many_and_one_too_few_of_a_job_are_both_found(db: Db) -> None:
    """P07: their numbers agree, and still neither stays."""
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 3})
    lone, held, done = frames_of(db, job)
    for frame in (lone, held, done):
        book(db, frame, pk_host, age_seconds=500)
    call(db, "release_procs", column(db, "select pk_proc from proc where pk_frame = %s", lone))
    db.execute("update frame set str_state = 'DEAD', int_version = int_version + 1 where pk_frame = %s", [done])
    assert one(db, "select int_running_count = (select count(*) from proc) from job_stat where pk_job = %s", job)
    call(db, "sweep", now(db))
    assert [state(db, frame) for frame in (lone, held, done)] == ["WAITING", "RUNNING", "DEAD"]
    assert column(db, "select pk_frame from proc") == [held]
    assert faults(db) == ["orphan frame", "orphan proc"]
    assert accounting(db) == []


def test_counters_of_states_that_lie_hide_no_frame_and_keep_no_job_open(db: Db) -> None:
    """P14, for the counters that say what waits: they are counted anew, told, and what they hid is booked."""
    add_host(db, "h")
    hidden, done = add_job(db, "hidden", {"a": 4}), add_job(db, "done", {"a": 1})
    db.execute("update layer_stat set int_waiting_count = 0 where pk_job = %s", [hidden])
    db.execute("update job_stat set int_waiting_count = 0, int_dead_count = 3 where pk_job = %s", [hidden])
    ((proc, frame),) = [(book(db, f, add_host(db, "other")), f) for f in frames_of(db, done)]
    db.execute("update job_stat set int_dead_count = 2 where pk_job = %s", [done])
    complete(db, proc, frame)
    assert one(db, "select str_state from job where pk_job = %s", done) == "PENDING"
    answer = call(db, "sweep", now(db, 61))
    assert answer["errors"] == []
    assert column(db, "select detail ->> 'what' from maestro.fault where kind = 'drift' order by 1") == [
        "job_stat", "job_stat", "layer_stat",
    ]  # fmt: skip
    assert tick(db)["committed"] == 4
    assert one(db, "select str_state from job where pk_job = %s", done) == "FINISHED"
    assert accounting(db) == []


def test_a_mark_beyond_a_waiting_frame_does_not_hide_it_for_good(db: Db) -> None:
    """Somebody moved a frame to the front by hand."""
    add_host(db, "h", cores=4)
    job = add_job(db, "j", {"a": 4})
    call(db, "sweep")
    db.execute("insert into maestro.layer_mark select pk_layer, 3 from layer")
    assert tick(db)["committed"] == 2
    call(db, "sweep", now(db, 61))
    assert column(db, "select detail ->> 'what' from maestro.fault") == ["layer_mark"]
    assert tick(db)["committed"] == 2
    assert [state(db, frame) for frame in frames_of(db, job)] == ["RUNNING"] * 4
    assert accounting(db) == []


def test_a_frame_whose_checkpoint_nobody_took_away_runs_again(db: Db) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}, retries=3))[0]
    proc = book(db, frame, pk_host)
    db.execute("update frame set str_checkpoint_state = 'ENABLED'")
    complete(db, proc, frame, 1)
    assert state(db, frame) == "CHECKPOINT"
    call(db, "sweep", now(db, 200))
    assert state(db, frame) == "CHECKPOINT"
    call(db, "report_status", host_report("h"), now(db, 300))
    call(db, "sweep", now(db, 301))
    assert state(db, frame) == "WAITING"
    assert faults(db) == ["checkpoint left open"]
    assert tick(db)["committed"] == 1
    assert accounting(db) == []
