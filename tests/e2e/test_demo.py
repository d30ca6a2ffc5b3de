"""The demo as a user runs it: it renders everything, and however it ends nothing stays behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from db.cluster import Cluster
from demo import png, processes

from .conftest import RunningDemo, wait_for

Start = Callable[[int], RunningDemo]


def test_every_frame_is_rendered_once_and_the_books_balance(start_demo: Start) -> None:
    demo = start_demo(6)
    summary = demo.finish()
    assert (summary["frames_total"], summary["frames_succeeded"]) == (6, 6)
    assert summary["contact_sheet"] is True
    assert summary["accounting_faults"] == 0
    assert summary["hosts"] == 3
    assert summary["hosts_whole"] is True
    assert sum(summary["frames_by_host"].values()) == 7
    assert summary["ticks"] > 0
    assert summary["mean_tick_ms"] > 0
    assert [Path(name).name for name in summary["pictures"]] == [
        "contact.png", *(f"frame.{number:04d}.png" for number in range(1, 7))
    ]  # fmt: skip
    frames = [png.read(path) for path in demo.pictures if path.name.startswith("frame")]
    assert len({tuple(rows) for rows in frames}) == 6
    assert len(demo.logs()) == 7, demo.logs()
    assert processes.marked(demo.directory) == []
    assert not Cluster.default().running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_ended_leaves_no_process_behind(start_demo: Start, number: signal.Signals) -> None:
    demo = start_demo(200)
    wait_for("frames to run", lambda: len(demo.pictures) >= 1)
    demo.process.send_signal(number)
    _, err = demo.process.communicate(timeout=180)
    if number == signal.SIGKILL:
        wait_for("the farm to notice", lambda: not processes.marked(demo.directory), 30)
        return
    assert demo.process.returncode == 1
    assert err.splitlines()[-1] == "maestro: interrupted; everything the demo started was stopped"
    assert processes.marked(demo.directory) == []
    assert not Cluster.default().running()
