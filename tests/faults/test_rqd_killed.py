"""kill -9 of a stock RQD in the middle of the work: its frames are freed and run elsewhere, or there again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from demo import processes
from tests.e2e.conftest import RunningDemo, start_demo, var, wait_for

__all__ = ["start_demo", "var"]


def _rqds(demo: RunningDemo) -> list[int]:
    """Process ids of the RQDs themselves, not of what they run."""
    found = []
    for number in processes.marked(demo.directory):
        with contextlib.suppress(OSError):  # it ended meanwhile
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith((b"/rqd", b"rqd.rqd", b"rqd")) for word in words[:4]):
                found.append(number)
    return sorted(found)


def test_frames_of_a_killed_rqd_are_freed_and_all_succeed(start_demo: Callable[[int], RunningDemo]) -> None:
    demo = start_demo(18)
    wait_for("the first pictures", lambda: len(demo.pictures) >= 2)
    killed = _rqds(demo)[0]
    os.kill(killed, signal.SIGKILL)
    wait_for("another RQD in its place", lambda: len(_rqds(demo)) >= 3 and killed not in _rqds(demo))
    summary = demo.finish()
    assert summary["frames_succeeded"] == 18
    assert summary["contact_sheet"] is True
    assert summary["accounting_faults"] == 0
    assert summary["hosts_whole"] is True
