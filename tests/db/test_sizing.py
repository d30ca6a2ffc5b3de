"""Sizing by memory: what frames were seen to use is learnt from reports and completions, and decides later bookings."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.db.farm import GIB, accounting, add_host, add_job, call, column, layer_of, one, run, running, tick

Db = psycopg.Connection[Any]


def status(db: Db, host: str, runs: list[dict[str, Any]]) -> None:
    cores, mem = db.execute("select int_cores, int_mem from host where str_name = %s", [host]).fetchone() or (0, 0)
    call(
        db, "report_status",
        {
            "host": {"name": host, "num_procs": cores // 100, "cores_per_proc": 100, "total_mem": str(mem),
                     "free_mem": str(mem), "tags": ["linux", "64bit"], "facility": "local", "state": "UP"},
            "frames": runs,
        },
    )  # fmt: skip


def flood(db: Db, threadable: bool = True, frames: int = 100, cores: int = 100) -> tuple[str, str]:
    """Two hosts of 32 cores and 128 GiB, and a layer that declares 1 GiB a frame. Keys of its job and itself."""
    for number in range(2):
        add_host(db, f"host{number}", cores=32, mem_gib=128)
    job = add_job(db, "flood", {"render": frames})
    db.execute("update layer set b_threadable = %s, int_cores_min = %s", [threadable, cores])
    return job, layer_of(db, job, "render")


def report_all(db: Db, job: str, rss: int) -> None:
    names = dict(db.execute("select p.pk_proc, h.str_name from proc p join host h using (pk_host)").fetchall())
    for host in sorted(set(names.values())):
        status(db, host, [run(p, f, rss) for p, f in running(db, job) if names[p] == host])


def test_a_threadable_layer_of_one_core_runs_eight_frames_until_it_was_seen(db: Db) -> None:
    job, layer = flood(db)
    assert tick(db)["committed"] == 8
    assert tick(db)["committed"] == 0
    report_all(db, job, 18 * GIB)
    done = tick(db)
    assert done["committed"] > 0
    # 4 GiB a core on these hosts: 18 GiB are worth five cores (4.5, rounded).
    assert column(db, "select distinct int_cores_reserved from proc order by 1") == [100, 500]
    assert one(db, "select min(int_mem_reserved) from proc where int_cores_reserved = 500") >= 18 * GIB
    assert db.execute(
        "select median_rss, samples from maestro.layer_memory where pk_layer = %s", [layer]
    ).fetchall() == [(18 * GIB, 8)]
    assert accounting(db) == []


def test_one_haywire_frame_resizes_nothing(db: Db) -> None:
    job, layer = flood(db)
    tick(db)
    wild = running(db, job)[0][0]
    names = dict(db.execute("select p.pk_proc, h.str_name from proc p join host h using (pk_host)").fetchall())
    for host in sorted(set(names.values())):
        status(db, host, [run(p, f, GIB if p != wild else 60 * GIB) for p, f in running(db, job)
                          if names[p] == host])  # fmt: skip
    tick(db)
    assert one(db, "select median_rss from maestro.layer_memory where pk_layer = %s", layer) == GIB
    assert column(db, "select distinct int_cores_reserved from proc") == [100]
    assert accounting(db) == []


def test_a_layer_that_is_not_threadable_keeps_its_cores(db: Db) -> None:
    job, _ = flood(db, threadable=False, frames=40)
    tick(db)
    report_all(db, job, 9 * GIB)
    tick(db)
    assert column(db, "select distinct int_cores_reserved from proc") == [100]
    assert accounting(db) == []


def test_an_explicit_ask_runs_at_full_speed_from_the_first_frame(db: Db) -> None:
    flood(db, cores=200)
    assert tick(db)["committed"] == 16  # eight a host: no layer takes more of one before it was seen
    assert accounting(db) == []


def test_completions_teach_as_reports_do_and_a_frame_counts_once(db: Db) -> None:
    job, layer = flood(db)
    tick(db)
    report_all(db, job, 2 * GIB)
    report_all(db, job, 2 * GIB + 4)  # hardly more: no sample
    assert one(db, "select count(*) from maestro.peak_sample") == 8
    report_all(db, job, 3 * GIB)
    names = dict(db.execute("select p.pk_proc, h.str_name from proc p join host h using (pk_host)").fetchall())
    call(
        db, "report_completion",
        [
            {"host": {"name": names[p]}, "exit_status": 0, "run_time": 60,
             "frame": {"resource_id": p, "frame_id": f, "max_rss": str(4 * GIB)}}
            for p, f in running(db, job)[:3]
        ],
    )  # fmt: skip
    call(db, "drain")
    assert one(db, "select count(*) from maestro.peak_sample") == 0
    peaks = one(db, "select peaks from maestro.layer_memory where pk_layer = %s", layer)
    assert sorted(peaks) == [3 * GIB] * 5 + [4 * GIB] * 3
    assert accounting(db) == []


def test_only_the_last_thirty_two_frames_count(db: Db) -> None:
    db.execute("select maestro.learn_memory(array_agg('l'::text), array_agg('f' || n), array_agg(n))"
               " from generate_series(1, 100) as n")  # fmt: skip
    db.execute("select maestro.learn_memory('{l,l}', '{f1,f100}', '{500,600}')")
    peaks, median = db.execute("select peaks, median_rss from maestro.layer_memory").fetchall()[0]
    assert (len(peaks), peaks[-2:], min(peaks)) == (32, [500, 600], 70)
    assert median == sorted(peaks)[15]


def test_the_memory_of_done_jobs_is_forgotten(db: Db) -> None:
    job, layer = flood(db)
    db.execute("select maestro.learn_memory(array[%s, 'gone'], '{f,f}', '{5,5}')", [layer])
    assert one(db, "select maestro.forget_state(now())") == 1
    db.execute("update job set str_state = 'FINISHED' where pk_job = %s", [job])
    assert one(db, "select maestro.forget_state(now())") == 1
