"""A launcher that is killed in the middle of the work: no frame is lost and none runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from .conftest import RunningDemo, wait_for


def test_a_killed_launcher_costs_no_frame(start_demo: Callable[[int], RunningDemo]) -> None:
    demo = start_demo(14)
    wait_for("the first pictures", lambda: len(demo.pictures) >= 3)
    (first,) = demo.launchers()
    os.kill(first, signal.SIGKILL)
    wait_for("another launcher", lambda: set(demo.launchers()) - {first})
    summary = demo.finish()
    assert summary["frames_succeeded"] == 14
    assert summary["contact_sheet"] is True
    assert summary["accounting_faults"] == 0
    assert summary["hosts_whole"] is True
    logs = demo.logs()
    assert len(logs) == 15, logs
    assert all(name.endswith(".rqlog") for name in logs), logs
    assert "launcher ended with status -9" in (demo.directory / "farm.log").read_text()
