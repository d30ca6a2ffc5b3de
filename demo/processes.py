"""Finding and ending every process of a demo, whoever its parent is by now.

RQD runs each frame in a session of its own, so neither process groups nor parents lead to all of them. An environment
variable does: it is set for the farm, inherited by launcher and RQDs, and RQD passes it on to its frames.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "MAESTRO_DEMO"


def environment(directory: Path) -> dict[str, str]:
    """Variables for processes of the demo in `directory`: the mark, and scratch files kept there too."""
    return {MARK: str(directory), "TMPDIR": str(directory / "tmp")}


def marked(directory: Path) -> list[int]:
    """Process ids of the demo that lives in `directory`, this process never among them."""
    wanted = f"{MARK}={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end(directory: Path, farm: int | None = None, grace_seconds: float = 15.0) -> None:
    """End the demo in `directory`: its farm process in good order if it is known, then by force whatever is left."""
    if farm is not None and farm in marked(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(farm, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while farm in marked(directory) and time.monotonic() < deadline:
            time.sleep(0.05)
    deadline = time.monotonic() + grace_seconds
    while (left := marked(directory)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
