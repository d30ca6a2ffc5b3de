"""The lanes of `maestro test`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from cli.test import in_lanes
from db.cluster import ROOT

# A lane whose command says that it has begun, and on an interrupt takes its time before it says that it is gone.
INTERRUPTED = """
import signal, sys
from cli.test import _interrupt, in_lanes, run
signal.signal(signal.SIGTERM, _interrupt)
command = '''
import pathlib, signal, sys
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
pathlib.Path(sys.argv[1], "begun").touch()
signal.pause()
pathlib.Path(sys.argv[1], "gone").write_text(str(len(asked)))
'''
in_lanes([[("first", lambda: run(sys.executable, "-c", command, sys.argv[1])),
           ("never", lambda: run("touch", sys.argv[1] + "/never"))]])
"""


def test_lanes_run_side_by_side() -> None:
    both = threading.Barrier(2)

    def meet() -> tuple[bool, str]:
        both.wait(timeout=60)
        return True, ""

    assert in_lanes([[("one", meet)], [("other", meet)]]) == []


def test_a_step_that_fails_is_named_and_its_lane_goes_on() -> None:
    ran = []

    def fail() -> tuple[bool, str]:
        return False, "why"

    def last() -> tuple[bool, str]:
        ran.append("last")
        return True, ""

    assert in_lanes([[("bad", fail), ("last", last)]]) == ["bad"]
    assert ran == ["last"]


def test_an_interrupt_reaches_each_command_once_and_is_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True) as lanes:
        while not (tmp_path / "begun").exists():
            assert lanes.poll() is None
        lanes.send_signal(signal.SIGTERM)
        lanes.communicate(timeout=60)
    assert (tmp_path / "gone").read_text() == "1"
    assert not (tmp_path / "never").exists()
