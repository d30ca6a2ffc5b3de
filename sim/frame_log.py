"""Logs of fake frames in the form in which RQD writes them: from them the launcher reads ends that were never told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.fake_rqd import Exit

RULE = "=" * 59


def write_head(frame: Any) -> None:
    """The head of a frame's log; an earlier run's log is renamed, as RQD does."""
    path = _log_path(frame)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        number = 1
        while path.with_name(f"{path.name}.{number}").exists():
            number += 1
        path.rename(path.with_name(f"{path.name}.{number}"))
    environment = "".join(f"env            {name}={value}\n" for name, value in frame.environment.items())
    path.write_text(f"{RULE}\nRenderQ JobSpec\n{environment}{RULE}\n")


def write_foot(frame: Any, ending: Exit) -> None:
    with _log_path(frame).open("a") as log:
        log.write(
            f"\n{RULE}\nRenderQ Job Complete\nexitStatus          {ending.status}\n"
            f"exitSignal          {ending.signal}\nmaxrss              {ending.max_rss}\n{RULE}\n"
        )


def _log_path(frame: Any) -> Path:
    return Path(frame.log_dir) / f"{frame.job_name}.{frame.frame_name}.rqlog"
