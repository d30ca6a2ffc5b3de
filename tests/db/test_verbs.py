"""What operators do by hand: retry, eat, kill, pause, lock, drain."""

from __future__ import annotations

import json
from decimal import Decimal

import psycopg
import pytest
from click.testing import CliRunner

from cli.main import cli
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
    depend,
    frames_of,
    host_report,
    layer_of,
    one,
    run,
    running,
    state,
    tick,
    uncap,
)


def test_a_retried_running_frame_never_runs_twice(db: Db) -> None:
    """P02: a hundred running frames retried; the old runs' ends come late and twice; each frame starts once more."""
    uncap(db)
    for number in range(4):
        add_host(db, f"h{number}", cores=64, mem_gib=256)
    job = add_job(db, "j", {"a": 100})
    tick(db)
    old = running(db, job)
    db.execute("delete from maestro.launch")  # as when launchers have sent them
    assert call(db, "retry_frames", "j", "a") == {"retried": 0, "killed": 100}
    assert call(db, "retry_frames", "j", "a") == {"retried": 0, "killed": 0}
    assert one(db, "select count(*) from maestro.host_order where kind = 'kill'") == 100
    assert tick(db)["committed"] == 0
    assert running(db, job) == old
    late = [completion(db, proc, frame, 1, 9, host="h0") for proc, frame in old]
    call(db, "report_completion", late)
    assert tick(db)["committed"] == 100
    new = running(db, job)
    assert not {proc for proc, _ in old} & {proc for proc, _ in new}
    call(db, "report_completion", late)
    answer = tick(db)
    assert (answer["stale"], answer["committed"]) == (100, 0)
    assert running(db, job) == new
    assert one(db, "select count(*) from maestro.launch") == 100
    assert accounting(db) == []


def test_a_launch_that_nobody_has_taken_is_undone_at_once(db: Db) -> None:
    add_host(db, "h")
    job = add_job(db, "j", {"a": 2})
    tick(db)
    assert call(db, "retry_frames", "j", "a", [1]) == {"retried": 0, "killed": 0}
    assert call(db, "eat_frames", "j", "a", [2]) == {"eaten": 0, "killed": 0, "finished_jobs": 0}
    assert [state(db, f) for f in frames_of(db, job)] == ["WAITING", "EATEN"]
    assert one(db, "select count(*) from maestro.launch") == 0
    assert accounting(db) == []


def test_a_wish_holds_when_the_run_is_lost_instead_of_ending(db: Db) -> None:
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2})
    procs = [book(db, f, pk_host) for f in frames_of(db, job)]
    call(db, "eat_frames", "j", "a")
    call(db, "unbook", procs, 399)
    assert [state(db, f) for f in frames_of(db, job)] == ["EATEN", "EATEN"]
    assert one(db, "select str_state from job") == "FINISHED"
    assert one(db, "select count(*) from maestro.frame_wish") == 0
    assert accounting(db) == []


def test_a_run_to_be_eaten_that_succeeds_stays_a_success(db: Db) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, pk_host)
    call(db, "eat_frames", "j", "a")
    complete(db, proc, frame, 0)
    assert state(db, frame) == "SUCCEEDED"


def test_a_job_alone_means_its_dead_frames(db: Db) -> None:
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 3}, retries=0)
    good, bad, _ = frames_of(db, job)
    complete(db, book(db, good, pk_host), good, 0)
    complete(db, book(db, bad, pk_host), bad, 1)
    assert call(db, "retry_frames", "j") == {"retried": 1, "killed": 0}
    assert [state(db, f) for f in frames_of(db, job)] == ["SUCCEEDED", "WAITING", "WAITING"]
    assert accounting(db) == []


def test_retrying_a_finished_job_opens_it_again_under_its_name(db: Db) -> None:
    pk_host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    complete(db, book(db, frame, pk_host), frame)
    call(db, "retry_frames", "j", "a")
    assert db.execute("select str_state, str_visible_name, ts_stopped from job").fetchone() == ("PENDING", "j", None)
    assert complete(db, book(db, frame, pk_host), frame)["finished_jobs"] == 1
    assert accounting(db) == []


def test_a_killed_job_ends_at_once_and_its_runs_release_what_they_hold(db: Db) -> None:
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 3})
    other = add_job(db, "other", {"b": 1})
    ends = [{"job": j, "layer": layer_of(db, j, n)} for j, n in ((other, "b"), (job, "a"))]
    depend(db, "LAYER_ON_JOB", *ends)
    frames = frames_of(db, job)
    procs = [book(db, f, pk_host) for f in frames[:2]]
    assert call(db, "kill_job", "j") == {"pk_job": job, "killed": 2}
    assert one(db, "select str_state from job where pk_job = %s", job) == "FINISHED"
    assert one(db, "select str_state from frame where pk_job = %s", other) == "WAITING"
    # A kill that came before the launch is ordered again by the first report of the run.
    db.execute("delete from maestro.host_order")
    call(db, "report_status", host_report("h", [run(procs[0], frames[0])]))
    assert column(db, "select reason from maestro.host_order") == ["the job is over"]
    complete(db, procs[0], frames[0], 1, 9)
    complete(db, procs[1], frames[1], 0)
    assert [state(db, f) for f in frames] == ["WAITING", "SUCCEEDED", "WAITING"]
    assert one(db, "select int_exit_status from frame where pk_frame = %s", frames[0]) == 500
    assert one(db, "select count(*) from proc") == 0
    with pytest.raises(psycopg.Error, match="cannot be killed: it is FINISHED") as caught:
        call(db, "kill_job", job)
    assert caught.value.sqlstate == "QM003"
    assert accounting(db) == []


def test_a_locked_host_gets_nothing_and_loses_what_was_not_sent(db: Db) -> None:
    add_host(db, "h")
    job = add_job(db, "j", {"a": 3})
    tick(db)
    call(db, "lock_host", "h", "screen broken")
    assert one(db, "select count(*) from proc") == 0
    assert tick(db)["committed"] == 0
    assert column(db, "select distinct int_retries from frame where pk_job = %s", job) == [0]
    call(db, "unlock_host", "h")
    assert tick(db)["committed"] == 3
    assert accounting(db) == []


def test_a_drained_host_empties_restarts_and_opens_with_its_boot(db: Db) -> None:
    """P64: no frame starts between the request and the boot report."""
    uncap(db)
    pk_host = add_host(db, "h")
    job = add_job(db, "j", {"a": 40})
    tick(db)
    db.execute("delete from maestro.launch")
    runs = running(db, job)
    call(db, "drain_host", "h", "leaks")
    call(db, "sweep_hosts", one(db, "select now()"))
    assert one(db, "select count(*) from maestro.host_order") == 0
    for proc, frame in runs:
        call(db, "report_completion", completion(db, proc, frame))
    assert tick(db)["committed"] == 0
    call(db, "sweep_hosts", one(db, "select now()"))
    assert db.execute("select kind, pk_host, reason from maestro.host_order").fetchall() == [
        ("restart_idle", pk_host, "leaks")
    ]
    call(db, "report_status", host_report("h"))
    assert tick(db)["committed"] == 0
    call(db, "report_startup", host_report("h"))
    assert one(db, "select count(*) from maestro.host_drain") == 0
    assert tick(db)["committed"] == 16
    assert accounting(db) == []


def test_a_drain_leaves_a_persons_lock_in_force(db: Db) -> None:
    add_host(db, "h")
    call(db, "lock_host", "h", "mine")
    call(db, "drain_host", "h", "leaks")
    with pytest.raises(psycopg.Error, match="is being drained"):
        call(db, "unlock_host", "h")
    call(db, "undrain_host", "h")
    assert db.execute("select str_lock_state, str_lock_source from host").fetchone() == ("LOCKED", "mine")
    call(db, "unlock_host", "h")
    call(db, "drain_host", "h")
    call(db, "undrain_host", "h")
    assert one(db, "select str_lock_state from host") == "OPEN"
    with pytest.raises(psycopg.Error, match="is not being drained"):
        call(db, "undrain_host", "h")


def test_unknown_names_and_values_out_of_range_are_refused_in_one_line(db: Db) -> None:
    add_job(db, "j", {"a": 1})
    for function, arguments, code, message in (
        ("pause_job", ["nix"], "QM002", "no job nix"),
        ("retry_frames", ["j", "b"], "QM002", "job j has no layer b"),
        ("eat_frames", ["j", "a", [7]], "QM002", "job j has no frame 7"),
        ("lock_host", ["nix"], "QM002", "no host nix"),
        ("set_job_priority", ["j", -1], "QM001", "priority cannot be -1"),
        ("set_job_max_cores", ["j", -1], "QM001", "maximum cores cannot be -1"),
        ("set_job_min_cores", ["j", 1000000], "QM001", "above its maximum"),
    ):
        with pytest.raises(psycopg.Error, match=message) as caught:
            call(db, function, *arguments)
        assert caught.value.sqlstate == code


def test_cores_given_by_people_are_cores(db: Db) -> None:
    add_job(db, "j", {"a": 1})
    call(db, "set_job_max_cores", "j", Decimal("12.5"))
    call(db, "set_job_min_cores", "j", 2)
    assert db.execute("select int_min_cores, int_max_cores from job_resource").fetchone() == (200, 1250)


def test_the_commands_do_what_the_functions_do(db: Db, dsn: str) -> None:
    add_host(db, "h")
    job = add_job(db, "j", {"a": 3})

    def maestro(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(cli, ["--dsn", dsn, *arguments, "--json"])
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.output.splitlines()[-1]))

    assert maestro("job", "list")["jobs"][0]["waiting"] == 3  # type: ignore[index]
    assert maestro("job", "pause", "j") == {"pk_job": job}
    assert maestro("job", "show", job)["state"] == "PAUSED"
    maestro("job", "resume", "j")
    assert maestro("job", "priority", "j", "50") == {"pk_job": job, "priority": 50}
    assert maestro("job", "eat", "j", "--layer", "a", "--frames", "1-2")["eaten"] == 2
    assert maestro("job", "retry", "j", "--frames", "1", "--state", "EATEN")["retried"] == 1
    assert maestro("job", "kill", "j")["killed"] == 0
    maestro("host", "lock", "h", "--reason", "why")
    assert maestro("host", "list")["hosts"][0]["reason"] == "why"  # type: ignore[index]
    maestro("host", "unlock", "h")
    maestro("host", "drain", "h")
    assert maestro("host", "list")["hosts"][0]["lock"] == "DRAINING"  # type: ignore[index]
    maestro("host", "undrain", "h")
    for arguments in (["job", "list"], ["job", "show", "j"], ["host", "list"]):
        shown = CliRunner().invoke(cli, ["--dsn", dsn, *arguments])
        assert shown.exit_code == 0, shown.output
