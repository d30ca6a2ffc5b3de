"""How a frame ended, read from its log, when RQD's report of it was lost.

RQD reports the end of a frame once and forgets it. Its log remembers: the head lists the environment, in which we put
the booking's id, and a foot with the exit status is written when the frame ends. The log root is usually a share that
the launcher sees as well; where it is not, nothing is found and nothing is claimed.

Reads are bounded, and stay inside the job's log directory. Older runs' logs are renamed NAME.1, NAME.2, … upwards.
"""

from __future__ import annotations

import calendar
import enum
import os
import re
import stat
import time
from dataclasses import dataclass

from launcher.runframe import PROC_VARIABLE

HEAD_BYTES = 256 * 1024
FOOT_BYTES = 64 * 1024
ROTATED_MAX = 20
_RULE = "=" * 59
_FOOT = re.compile(r"^" + _RULE + r"\nRenderQ Job Complete\n", re.MULTILINE)
_NUMBER = re.compile(r"^(exitStatus|exitSignal|maxrss|maxUsedGpuMemory)\s+(-?\d{1,18})\s*$", re.MULTILINE)
_TIMES = re.compile(r"^(startTime|endTime)\s+(\S.*?)\s*$", re.MULTILINE)


class Trace(enum.Enum):
    """What the logs say about a booking."""

    ENDED = "ended"  # its run wrote a foot
    STARTED = "started"  # its run wrote a head and no foot
    ABSENT = "absent"  # the log directory is there and none of its logs is of this booking
    UNSEEN = "unseen"  # the directory cannot be seen from here


@dataclass(frozen=True)
class Ending:
    """The end of a run: exit status and signal as RQD reports them, memory in KiB, run time in seconds."""

    exit_status: int
    exit_signal: int
    max_rss_kib: int
    max_gpu_mem_kib: int
    run_time_s: int


def look(log_dir: str, job_name: str, frame_name: str, pk_proc: str) -> tuple[Trace, Ending | None]:
    """What the frame's logs tell about the booking pk_proc. Blocking (disk); never raises for what it finds."""
    try:
        directory = os.path.realpath(log_dir)
        if not log_dir or not os.path.isabs(log_dir) or not os.path.isdir(directory):
            return Trace.UNSEEN, None
        name = f"{job_name}.{frame_name}.rqlog"
        if os.path.basename(name) != name or "\0" in name:
            return Trace.UNSEEN, None
        for candidate in [name, *(f"{name}.{number}" for number in range(ROTATED_MAX, 0, -1))]:
            found = _read(os.path.join(directory, candidate), pk_proc)
            if found is not None:
                return (Trace.ENDED, found[0]) if found[0] else (Trace.STARTED, None)
    except (OSError, ValueError):
        return Trace.UNSEEN, None
    return Trace.ABSENT, None


def _read(path: str, pk_proc: str) -> tuple[Ending | None] | None:
    """None: no log, or another booking's. Else the ending, or (None,) while there is none."""
    try:
        # A frame may put anything into its log directory: no links, no devices, no waiting on pipes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        head = file.read(HEAD_BYTES).decode("utf-8", "replace")
        if not _is_of(head, pk_proc):
            return None
        if status.st_size > FOOT_BYTES:
            file.seek(status.st_size - FOOT_BYTES)
            foot = file.read(FOOT_BYTES + 1).decode("utf-8", "replace")
        else:
            foot = head
    return (_ending(foot),)


def _is_of(head: str, pk_proc: str) -> bool:
    """Whether the log's head, which ends at its second rule, names the booking."""
    end = head.find("\n" + _RULE, len(_RULE))
    head = head if end < 0 else head[:end]
    return re.search(rf"^env\s+{PROC_VARIABLE}={re.escape(pk_proc)}$", head, re.MULTILINE) is not None


def _ending(foot: str) -> Ending | None:
    """The last foot in the text; the frame's own output may hold something alike, but not after RQD's."""
    starts = [match.end() for match in _FOOT.finditer(foot)]
    if not starts:
        return None
    text = foot[starts[-1]:]
    numbers: dict[str, int] = {}
    for match in _NUMBER.finditer(text):
        numbers.setdefault(match[1], int(match[2]))
    if not {"exitStatus", "exitSignal"} <= numbers.keys():
        return None
    return Ending(
        exit_status=numbers["exitStatus"],
        exit_signal=numbers["exitSignal"],
        max_rss_kib=max(numbers.get("maxrss", 0), 0),
        max_gpu_mem_kib=max(numbers.get("maxUsedGpuMemory", 0), 0),
        run_time_s=_run_time(text),
    )


def _run_time(text: str) -> int:
    """Seconds between the foot's start and end, 0 if it does not tell. Both are RQD's local time in C's usual form."""
    moments: dict[str, int] = {}
    for match in _TIMES.finditer(text):
        try:
            moments.setdefault(match[1], calendar.timegm(time.strptime(match[2], "%a %b %d %H:%M:%S %Y")))
        except ValueError:
            return 0
    return max(moments.get("endTime", 0) - moments.get("startTime", 0), 0) if len(moments) == 2 else 0
