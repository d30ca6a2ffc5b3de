"""Completions: what a finished run changes, and what a late, repeated or forged report does not."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from tests.db.farm import (
    GIB,
    SHOW,
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
    layer_of,
    one,
    running,
    state,
    tick,
)


def run_once(db: Db, status: int, signal: int = 0, job: dict[str, Any] | None = None, **more: Any) -> tuple[str, int]:
    """One frame of a fresh job runs and ends like this: its state and stored status."""
    host = add_host(db, "once")
    pk_job = add_job(db, "once", {"a": 2}, **(job or {}))
    frame = frames_of(db, pk_job)[0]
    complete(db, book(db, frame, host), frame, status, signal, **more)
    assert accounting(db) == []
    return db.execute("select str_state, int_exit_status from frame where pk_frame = %s", [frame]).fetchone()  # type: ignore[return-value]


def test_a_run_ends_in_the_state_that_its_status_means(db: Db) -> None:
    cases = {
        (0, 0): ("SUCCEEDED", 0),
        (1, 0): ("WAITING", 1),
        (1, 9): ("WAITING", 1),      # died by a signal: an ordinary failure
        (33, 0): ("WAITING", 33),    # memory
        (1, 33): ("WAITING", 33),    # memory, told by signal
        (137, 0): ("WAITING", 137),  # memory of a container
        (256, 0): ("WAITING", 256),  # failed launch
        (286, 0): ("WAITING", 286),  # no retry spent
        (299, 0): ("WAITING", 299),  # launch undone
        (1, 119): ("WAITING", 1),    # retry asked for
    }
    host = add_host(db, "h")
    frames = frames_of(db, add_job(db, "j", {"a": len(cases)}))
    for frame, ((status, signal), expected) in zip(frames, cases.items(), strict=True):
        complete(db, book(db, frame, host), frame, status, signal)
        row = db.execute("select str_state, int_exit_status from frame where pk_frame = %s", [frame]).fetchone()
        assert row == expected, (status, signal)
    assert accounting(db) == []


def test_a_frame_killed_by_nimby_waits_without_a_retry_spent(db: Db) -> None:
    assert run_once(db, 1, 15, nimby_locked=True) == ("WAITING", 286)
    assert one(db, "select str_lock_state from host where str_name = 'once'") == "NIMBY_LOCKED"


def test_auto_eat_eats_failures(db: Db) -> None:
    assert run_once(db, 1, job={"b_autoeat": True}) == ("EATEN", 1)


def test_a_run_of_over_twelve_hours_is_not_tried_again(db: Db) -> None:
    assert run_once(db, 1, run_time=43201) == ("DEAD", 1)


def test_a_frame_is_dead_after_one_run_more_than_its_retries_and_a_memory_failure_never_is(db: Db) -> None:
    host = add_host(db, "h")
    ordinary, hungry = frames_of(db, add_job(db, "j", {"a": 2}, retries=1))
    for expected in ("WAITING", "DEAD"):
        complete(db, book(db, ordinary, host), ordinary, 1)
        assert state(db, ordinary) == expected
    for _ in range(4):
        complete(db, book(db, hungry, host), hungry, 33)
        assert state(db, hungry) == "WAITING"
    assert accounting(db) == []


def test_a_memory_failure_does_not_stick_to_the_success_after_it(db: Db) -> None:
    host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 2}))[0]
    complete(db, book(db, frame, host), frame, 33)
    memory = one(db, "select int_mem_min from layer")
    complete(db, book(db, frame, host), frame, 0)
    assert db.execute("select str_state, int_exit_status from frame where pk_frame = %s", [frame]).fetchone() == (
        "SUCCEEDED", 0,
    )
    assert one(db, "select int_mem_min from layer") == memory


def test_an_optimized_layer_is_lowered_to_its_peak_and_never_by_a_report_without_memory(db: Db) -> None:
    host = add_host(db, "h")
    frames = frames_of(db, add_job(db, "j", {"a": 3}))
    complete(db, book(db, frames[0], host), frames[0], 0, max_rss=0)
    assert one(db, "select int_mem_min from layer") == GIB
    complete(db, book(db, frames[1], host), frames[1], 0, max_rss=500_000)
    assert one(db, "select int_mem_min from layer") == 762_144


def test_a_limits_exit_status_holds_the_layer_back_and_spends_no_retry(db: Db) -> None:
    db.execute(
        "insert into limit_record (pk_limit_record, str_name, int_exit_status, int_delay_minutes)"
        " values ('lic', 'arnold', 330, 10)"
    )
    assert run_once(db, 330) == ("WAITING", 286)
    assert db.execute("select pk_limit_record, str_source from layer_limit").fetchall() == [("lic", "AUTO")]
    assert one(db, "select ts_start_after > now() + interval '9 min' and str_start_after_reason ~ 'arnold' from layer")


def test_usage_is_counted_once_a_run_by_what_it_returned(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2})
    frames = frames_of(db, job)
    good = book(db, frames[0], host, cores=200, age_seconds=100)
    bad = book(db, frames[1], host, cores=400, age_seconds=50)
    reports = [completion(db, good, frames[0], 0), completion(db, bad, frames[1], 1)]
    for _ in range(3):
        call(db, "report_completion", reports)
    assert call(db, "drain")["drained"] == 2
    usage = (
        "int_core_time_success / 10, int_clock_time_success / 10, int_frame_success_count,"
        " int_core_time_fail / 10, int_clock_time_fail / 10, int_frame_fail_count"
    )
    for table in ("job_usage", "layer_usage"):
        assert db.execute(f"select {usage} from {table}").fetchone() == (20, 10, 1, 20, 5, 1)  # type: ignore[arg-type]
    shows = "select int_frame_success_count, int_frame_fail_count from show_stats where pk_show = %s"
    assert db.execute(shows, [SHOW]).fetchone() == (1, 1)
    assert accounting(db) == []


def test_what_the_fence_stops_changes_no_row(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 3})
    first, second, _ = frames_of(db, job)
    old = book(db, first, host)
    call(db, "unbook", [old], 301)
    new = book(db, first, host)
    other = book(db, second, host)
    before = db.execute("select * from frame order by pk_frame").fetchall()
    forged = [
        completion(db, old, first, host="h"),        # of a superseded booking
        completion(db, new, second, host="h"),       # the booking holds another frame
        completion(db, "nobody", first, host="h"),   # no such booking
        completion(db, other, "no-frame", host="h"),  # no such frame
    ]
    assert call(db, "report_completion", forged) == {"accepted": 4}
    assert call(db, "drain") == {"drained": 0, "stale": 4, "finished_jobs": 0, "errors": []}
    assert db.execute("select * from frame order by pk_frame").fetchall() == before
    assert accounting(db) == []


def test_three_shuffled_deliveries_end_as_one_does(db: Db) -> None:
    """P04: frames, usage and counters of a job reported three times over equal those of its twin, reported once."""
    count = 400
    for number in range(8):
        add_host(db, f"h{number}", cores=128, mem_gib=512)
    jobs = {name: add_job(db, name, {"a": count // 2, "b": count // 2}) for name in ("single", "triple")}
    assert tick(db)["committed"] == 2 * count
    statuses = [random.Random(4).choice([0, 0, 0, 1, 33, 286]) for _ in range(count)]
    sent = []
    for name, job in jobs.items():
        for (proc, frame), status in zip(running(db, job), statuses, strict=True):
            sent += [completion(db, proc, frame, status, host="h0", max_rss=GIB)] * (3 if name == "triple" else 1)
    random.Random(5).shuffle(sent)
    db.execute("update maestro.setting set value = '300' where name = 'completions_per_tick_max'")
    call(db, "report_completion", sent)
    answers = [call(db, "drain") for _ in range(len(sent) // 300 + 2)]
    assert sum(a["drained"] for a in answers) == 2 * count
    assert sum(a["stale"] for a in answers) == 2 * count

    def rows(job: str) -> list[Any]:
        return db.execute(
            "select str_name, str_state, int_exit_status, int_version, int_retries, int_mem_max_used from frame"
            " where pk_job = %s order by 1", [job],
        ).fetchall() + db.execute(
            "select int_frame_success_count, int_frame_fail_count from job_usage where pk_job = %s", [job]
        ).fetchall() + db.execute(
            "select int_waiting_count, int_running_count, int_succeeded_count, int_dead_count from job_stat"
            " where pk_job = %s", [job],
        ).fetchall()

    assert rows(jobs["single"]) == rows(jobs["triple"])
    assert one(db, "select count(*) from proc") == 0
    assert accounting(db) == []


def test_one_bad_completion_among_two_thousand_costs_the_others_nothing(db: Db) -> None:
    for number in range(16):
        add_host(db, f"h{number}", cores=128, mem_gib=512)
    job = add_job(db, "j", {f"l{n}": 100 for n in range(20)})
    assert tick(db)["committed"] == 2000
    runs = running(db, job)
    db.execute(
        "create function refuse() returns trigger language plpgsql as 'begin raise exception ''broken frame''; end'"
    )
    db.execute(
        f"create trigger refuse before update on frame for each row when (old.pk_frame = '{runs[777][1]}'"  # type: ignore[arg-type]
        " and new.str_state <> 'RUNNING') execute function refuse()"
    )
    call(db, "report_completion", [completion(db, proc, frame, host="h0") for proc, frame in runs])
    answer = call(db, "drain")
    assert (answer["drained"], answer["stale"]) == (1999, 0)
    assert [error["message"] for error in answer["errors"]] == ["broken frame"]
    assert one(db, "select detail #>> '{completion,pk_frame}' from maestro.fault") == runs[777][1]
    assert one(db, "select count(*) from maestro.completion") == 0
    assert one(db, "select int_frame_success_count from job_usage") == 1999
    assert accounting(db) == []


def test_an_error_of_the_server_blames_no_completion(db: Db) -> None:
    host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, host)
    db.execute(
        "create function refuse() returns trigger language plpgsql as"
        " 'begin raise exception using errcode = ''40P01'', message = ''deadlock''; end'"
    )
    db.execute("create trigger refuse before update on frame for each row execute function refuse()")
    call(db, "report_completion", completion(db, proc, frame))
    with pytest.raises(Exception, match="deadlock"):
        call(db, "drain")
    db.execute("drop trigger refuse on frame")
    assert call(db, "drain")["drained"] == 1
    assert accounting(db) == []


def test_a_drain_takes_no_more_than_its_limit_oldest_first(db: Db) -> None:
    host = add_host(db, "h")
    frames = frames_of(db, add_job(db, "j", {"a": 3}))
    for frame in frames:
        call(db, "report_completion", completion(db, book(db, frame, host), frame))
    db.execute("update maestro.setting set value = '2' where name = 'completions_per_tick_max'")
    assert call(db, "drain")["drained"] == 2
    assert [state(db, f) for f in frames] == ["SUCCEEDED", "SUCCEEDED", "RUNNING"]
    assert call(db, "drain")["finished_jobs"] == 1


# Depends -------------------------------------------------------------------------------------------------------------

TYPES = [
    f"{er}_ON_{on}" for er in ("FRAME", "LAYER", "JOB") for on in ("FRAME", "LAYER", "JOB")
]


def ends(db: Db, job: str, layer: str) -> dict[str, str]:
    return {"job": job, "layer": layer_of(db, job, layer), "frame": frames_of(db, job, layer)[0]}


def waiting(db: Db, job: str) -> int:
    return int(one(db, "select count(*) from frame where pk_job = %s and str_state = 'WAITING'", job))


@pytest.mark.parametrize("lost", [False, True], ids=["by completion", "by the sweep"])
@pytest.mark.parametrize("only_success", ["true", "false"], ids=["success only", "eaten too"])
def test_each_depend_is_satisfied_by_its_end_and_not_before(db: Db, only_success: str, lost: bool) -> None:
    """P55: completions and the sweep release the same frames, for both values of the setting; eaten frames too."""
    db.execute(
        "update maestro.setting set value = %s where name = 'depend_satisfy_only_on_frame_success'", [only_success]
    )
    host = add_host(db, "h")

    def finish(frame: str, status: int) -> None:
        # A composite depend is passed over: that is how an end goes unnoticed.
        db.execute("update depend set b_composite = %s", [lost])
        complete(db, book(db, frame, host), frame, status)
        if lost:
            db.execute("update depend set b_composite = false")
            call(db, "recover_depends", one(db, "select now()"))

    for kind in TYPES:
        on_job, er_job = f"on {kind}", f"er {kind}"
        first = add_job(db, on_job, {"a": 2}, b_autoeat=True)
        second = add_job(db, er_job, {"b": 3})
        depend(db, kind, ends(db, second, "b"), ends(db, first, "a"))
        held = {"F": 1, "L": 3, "J": 3}[kind[0]]
        assert waiting(db, second) == 3 - held, kind
        frames = frames_of(db, first)
        finish(frames[0], 1)
        assert state(db, frames[0]) == "EATEN"
        eaten_counts = kind.endswith("ON_FRAME") and only_success == "false"
        assert waiting(db, second) == (3 if eaten_counts else 3 - held), kind
        finish(frames[1], 0)
        if kind.endswith("ON_FRAME") and not eaten_counts:
            # The job is over, but the one frame that counts was eaten: a person decides.
            assert waiting(db, second) == 3 - held, kind
            call(db, "mark_done", on_job, "a", [1])
        assert waiting(db, second) == 3, kind
    assert accounting(db) == []


def test_an_eaten_last_frame_does_not_block_what_waits_for_its_layer(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2, "b": 2})
    depend(db, "LAYER_ON_LAYER", ends(db, job, "b"), ends(db, job, "a"))
    good, bad = frames_of(db, job, "a")
    complete(db, book(db, good, host), good)
    assert waiting(db, job) == 1
    call(db, "eat_frames", "j", "a", [2])
    assert (state(db, bad), waiting(db, job)) == ("EATEN", 2)
    assert accounting(db) == []


def test_any_frame_of_a_layer_satisfies_an_any_depend(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2, "b": 2})
    depend(db, "LAYER_ON_LAYER", ends(db, job, "b"), ends(db, job, "a"), any_frame=True)
    frame = frames_of(db, job, "a")[1]
    complete(db, book(db, frame, host), frame)
    assert waiting(db, job) == 3


def test_a_frame_waits_for_all_of_its_depends_and_a_parent_closes_with_its_last_child(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 2, "b": 2})
    a, b = frames_of(db, job, "a"), frames_of(db, job, "b")
    layers = layer_of(db, job, "a"), layer_of(db, job, "b")
    db.execute(
        "insert into depend (pk_depend, pk_job_depend_on, pk_job_depend_er, pk_layer_depend_on, pk_layer_depend_er,"
        " str_type, str_signature, b_composite) values ('parent', %s, %s, %s, %s, 'FRAME_BY_FRAME', 'parent', true)",
        [job, job, *layers],
    )
    for number in range(2):
        for on in a:
            depend(
                db, "FRAME_ON_FRAME", {"job": job, "layer": layers[1], "frame": b[number]},
                {"job": job, "layer": layers[0], "frame": on}, parent="parent",
            )
    complete(db, book(db, a[0], host), a[0])
    assert [state(db, f) for f in b] == ["DEPEND", "DEPEND"]
    assert one(db, "select b_active from depend where pk_depend = 'parent'")
    complete(db, book(db, a[1], host), a[1])
    assert [state(db, f) for f in b] == ["WAITING", "WAITING"]
    assert not one(db, "select b_active from depend where pk_depend = 'parent'")
    assert column(db, "select distinct int_depend_count from frame") == [0]
    assert accounting(db) == []


def test_a_finished_job_frees_its_name_and_starts_its_post_job(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 1})
    post = add_job(db, "post", {"clean": 1})
    db.execute("update job set str_state = 'POSTED' where pk_job = %s", [post])
    db.execute("insert into job_post (pk_job_post, pk_job, pk_post_job) values ('p', %s, %s)", [job, post])
    frame = frames_of(db, job)[0]
    assert complete(db, book(db, frame, host), frame)["finished_jobs"] == 1
    assert db.execute(
        "select str_state, str_visible_name, ts_stopped is not null from job where pk_job = %s", [job]
    ).fetchone() == ("FINISHED", None, True)
    assert one(db, "select str_state from job where pk_job = %s", post) == "PENDING"
    assert one(db, "select count(*) from job_post") == 0
    assert one(db, "select int_succeeded_count from job_history where pk_job = %s", job) == 1


def test_a_dead_frame_keeps_its_job_open_until_it_is_eaten(db: Db) -> None:
    host = add_host(db, "h")
    job = add_job(db, "j", {"a": 1}, retries=0)
    frame = frames_of(db, job)[0]
    complete(db, book(db, frame, host), frame, 1)
    assert (state(db, frame), one(db, "select str_state from job")) == ("DEAD", "PENDING")
    assert call(db, "eat_frames", "j") == {"eaten": 1, "killed": 0, "finished_jobs": 1}


def test_no_time_but_the_given_one_is_read(db: Db) -> None:
    host = add_host(db, "h")
    frame = frames_of(db, add_job(db, "j", {"a": 1}))[0]
    proc = book(db, frame, host)
    later = one(db, "select now()") + timedelta(days=3)
    call(db, "report_completion", completion(db, proc, frame), later)
    call(db, "drain", later)
    assert db.execute("select ts_stopped, ts_updated from frame").fetchone() == (later, later)
