"""Fixtures of the end-to-end tests: a var directory of the test's own, so that a developer's cluster is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from db import cluster
from db.cluster import ROOT, Cluster
from demo import processes


@pytest.fixture
def var(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty var directory; at the end, whatever still runs in it is ended and it is removed."""
    # Not tmp_path: user postgres may not enter it.
    directory = Path(tempfile.mkdtemp(prefix="maestro-e2e-"))
    directory.chmod(0o755)
    monkeypatch.setattr(cluster, "VAR", directory)
    monkeypatch.setenv("MAESTRO_VAR", str(directory))
    yield directory
    processes.end(directory / "demo")
    Cluster.default().destroy()
    shutil.rmtree(directory, ignore_errors=True)


@dataclass
class RunningDemo:
    """`maestro demo` as a process."""

    process: subprocess.Popen[str]
    directory: Path

    @property
    def pictures(self) -> list[Path]:
        return sorted((self.directory / "pictures").glob("*.png"))

    def logs(self) -> list[str]:
        """Names of the frames' logs, a numbered one for each run before the last."""
        return sorted(path.name for path in (self.directory / "logs").rglob("*.rqlog*"))

    def finish(self) -> dict[str, Any]:
        """Wait for its end and return the summary, the last line it printed."""
        out, err = self.process.communicate(timeout=240)
        assert self.process.returncode == 0, f"{err}\n{self.evidence()}"
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        return summary

    def evidence(self) -> str:
        """The ends of all logs, for the message of a test that failed."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)

    def launchers(self) -> list[int]:
        """Process ids of the launcher."""
        found = []
        for number in processes.marked(self.directory):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if b"launcher" in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"):
                    found.append(number)
        return found


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """The condition's first true answer; fails, naming `what`, when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds:g} s: {what}")


@pytest.fixture
def start_demo(var: Path) -> Iterator[Callable[[int], RunningDemo]]:
    """Starts `maestro demo --json` with so many frames."""
    started: list[subprocess.Popen[str]] = []

    def start(frames: int) -> RunningDemo:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "demo", "--frames", str(frames), "--json"],
            cwd=ROOT, env={**os.environ, "MAESTRO_VAR": str(var)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return RunningDemo(process, var / "demo")

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
