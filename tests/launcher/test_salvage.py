"""Reading from a frame's log how it ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.salvage import FOOT_BYTES, Ending, Trace, look
from sim.fake_rqd import Exit

RULE = "=" * 59


def write_log(
    log_dir: str, job: str, frame: str, proc: str, ending: Exit | None = None, body: str = "", suffix: str = ""
) -> Path:
    """A log as stock RQD writes it; without `ending` it has no foot."""
    path = Path(log_dir) / f"{job}.{frame}.rqlog{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    environment = {"AAA": "1", "MAESTRO_PROC": proc, "ZZZ": "2"}
    lines = [RULE, "RenderQ JobSpec      Mon Jan  5 10:00:00 2026 \n", f"{'command':<21}render", f"{'frameId':<21}f"]
    lines += [f"{'env':<21}{name}={value}" for name, value in environment.items()]
    lines += [RULE, body]
    if ending is not None:
        lines += [
            "", RULE, "RenderQ Job Complete\n", f"{'exitStatus':<20}{ending.status}",
            f"{'exitSignal':<20}{ending.signal}", f"{'startTime':<20}Mon Jan  5 10:00:00 2026",
            f"{'endTime':<20}Mon Jan  5 10:01:30 2026", f"{'maxrss':<20}{ending.max_rss}",
            f"{'maxUsedGpuMemory':<20}0", f"{'utime':<20}0", f"{'renderhost':<20}h0", RULE,
        ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_foot_tells_how_our_run_ended(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p1", Exit(status=3, signal=9, max_rss=77))
    assert look(str(tmp_path), "job", "0001-comp", "p1") == (Trace.ENDED, Ending(3, 9, 77, 0, 90))


def test_a_head_without_a_foot_was_started(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p1")
    assert look(str(tmp_path), "job", "0001-comp", "p1") == (Trace.STARTED, None)


def test_another_bookings_log_is_not_ours(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p12", Exit())
    assert look(str(tmp_path), "job", "0001-comp", "p1") == (Trace.ABSENT, None)


def test_no_log_is_absent_and_no_directory_is_unseen(tmp_path: Path) -> None:
    assert look(str(tmp_path), "job", "0001-comp", "p1") == (Trace.ABSENT, None)
    assert look(str(tmp_path / "elsewhere"), "job", "0001-comp", "p1") == (Trace.UNSEEN, None)
    assert look("", "job", "0001-comp", "p1") == (Trace.UNSEEN, None)


def test_the_log_of_an_older_run_is_found_under_its_new_name(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p3")
    write_log(str(tmp_path), "job", "0001-comp", "p2", Exit(status=1), suffix=".2")
    write_log(str(tmp_path), "job", "0001-comp", "p1", Exit(status=0), suffix=".1")
    assert look(str(tmp_path), "job", "0001-comp", "p2")[1] == Ending(1, 0, 100 * 1024, 0, 90)


def test_a_frame_that_prints_a_foot_itself_does_not_fool_it(tmp_path: Path) -> None:
    fake = f"{RULE}\nRenderQ Job Complete\n\nexitStatus          0\nexitSignal          0\n"
    write_log(str(tmp_path), "job", "0001-comp", "p1", Exit(status=2), body=fake)
    trace, ending = look(str(tmp_path), "job", "0001-comp", "p1")
    assert trace is Trace.ENDED
    assert ending is not None
    assert ending.exit_status == 2


def test_a_frame_that_prints_a_booking_does_not_become_it(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p1", Exit(), body=f"{'env':<21}MAESTRO_PROC=p2")
    assert look(str(tmp_path), "job", "0001-comp", "p2") == (Trace.ABSENT, None)


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    write_log(str(tmp_path), "job", "0001-comp", "p1", Exit(status=4), body="x" * (4 * FOOT_BYTES))
    trace, ending = look(str(tmp_path), "job", "0001-comp", "p1")
    assert trace is Trace.ENDED
    assert ending is not None
    assert ending.exit_status == 4


@pytest.mark.parametrize("name", ["../0001-comp", "a/b", "0001\0comp"])
def test_nothing_outside_the_log_directory_is_read(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "logs"
    inside.mkdir()
    assert look(str(inside), "job", name, "p1")[0] is Trace.UNSEEN


def test_a_link_or_a_pipe_in_the_logs_place_is_not_followed(tmp_path: Path) -> None:
    real = write_log(str(tmp_path / "other"), "job", "0001-comp", "p1", Exit())
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "job.0001-comp.rqlog").symlink_to(real)
    assert look(str(logs), "job", "0001-comp", "p1")[0] is not Trace.ENDED
    (logs / "job.0001-comp.rqlog").unlink()
    os.mkfifo(logs / "job.0001-comp.rqlog")
    assert look(str(logs), "job", "0001-comp", "p1") == (Trace.ABSENT, None)
