"""Memory that runs out: the frame asks for more first, its layer after a streak, and a host in need is saved."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import (
    GIB, accounting, add_host, add_job, book, call, column, complete, completion, frames_of, one, tick,
)  # fmt: skip

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


@pytest.mark.parametrize(("mem_gib", "reserved"), [(64, 3 * GIB), (3, 2 * GIB)])
def test_a_tick_books_a_frame_with_what_it_asks_for_as_far_as_the_host_has_it(
    db: Db, mem_gib: int, reserved: int
) -> None:
    host = add_host(db, "h", cores=2, mem_gib=mem_gib)
    frames = frames_of(db, add_job(db, "j", {"a": 2}))
    _fail(db, host, frames[:1])
    assert tick(db)["committed"] == 2
    assert column(db, "select int_mem_reserved from proc order by 1") == [GIB, reserved]
    assert accounting(db) == []
    for proc, frame in db.execute("select pk_proc, pk_frame from proc").fetchall():
        complete(db, proc, frame)
    assert one(db, "select int_mem_idle = int_mem from host")
    assert accounting(db) == []
