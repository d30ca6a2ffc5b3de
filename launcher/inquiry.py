"""What became of bookings whose launch or end is in doubt: ask the host, then read the frames' logs.

RQD knows a frame only once its log is made, a moment after it took the launch: so "not running" needs two answers some
seconds apart. Both the launch duty (no answer to a launch) and the verify duty (no report of a run) ask here.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass

from launcher import salvage
from launcher.rqd import Rqds, Silent
from launcher.salvage import Ending, Trace


class Verdict(enum.Enum):
    RUNNING = "running"  # the host runs it for this booking
    OTHER = "other"  # the host runs the frame for another booking
    ENDED = "ended"  # it ran, and its log tells how it ended
    LOST = "lost"  # it was started for this booking, does not run, and nothing tells how it ended
    NEVER = "never"  # it does not run and its logs know nothing of this booking
    GONE = "gone"  # it does not run, and its logs cannot be seen from here
    SILENT = "silent"  # the host cannot be asked


@dataclass(frozen=True)
class Booking:
    """What is asked about."""

    pk_proc: str
    pk_frame: str
    job_name: str
    frame_name: str
    log_dir: str


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    words: str = ""
    ending: Ending | None = None


_BY_TRACE = {
    Trace.ENDED: Verdict.ENDED,
    Trace.STARTED: Verdict.LOST,
    Trace.ABSENT: Verdict.NEVER,
    Trace.UNSEEN: Verdict.GONE,
}


async def inquire(
    rqds: Rqds, host_name: str, target: str, bookings: Sequence[Booking], gap_s: float
) -> dict[str, Finding]:
    """pk_proc -> finding, for bookings of one host. Two calls at most, whatever the number of bookings."""
    findings: dict[str, Finding] = {}
    open_ = list(bookings)
    for turn in (1, 2):
        if not await rqds.connect(target):
            silence = Finding(Verdict.SILENT, "no connection")
            return {**findings, **dict.fromkeys((b.pk_proc for b in open_), silence)}
        try:
            running = await rqds.running(host_name, target, [b.pk_frame for b in open_])
        except Silent as error:
            silence = Finding(Verdict.SILENT, str(error))
            return {**findings, **dict.fromkeys((b.pk_proc for b in open_), silence)}
        still = []
        for booking in open_:
            holder = running.get(booking.pk_frame)
            if holder is None:
                still.append(booking)
            elif holder == booking.pk_proc:
                findings[booking.pk_proc] = Finding(Verdict.RUNNING)
            else:
                findings[booking.pk_proc] = Finding(Verdict.OTHER, f"host runs the frame for booking {holder}")
        open_ = still
        if not open_:
            return findings
        if turn == 1:
            await asyncio.sleep(gap_s)
    for booking in open_:
        trace, ending = await asyncio.to_thread(
            salvage.look, booking.log_dir, booking.job_name, booking.frame_name, booking.pk_proc
        )
        findings[booking.pk_proc] = Finding(_BY_TRACE[trace], f"log {trace.value}", ending)
    return findings


def completion(booking: Booking, host_name: str, ending: Ending) -> dict[str, object]:
    """The completion that RQD would have reported, from the end that the log tells."""
    return {
        "host": {"name": host_name},
        "frame": {
            "resource_id": booking.pk_proc,
            "frame_id": booking.pk_frame,
            "frame_name": booking.frame_name,
            "job_name": booking.job_name,
            "max_rss": ending.max_rss_kib,
            "max_used_gpu_memory": ending.max_gpu_mem_kib,
        },
        "exit_status": ending.exit_status,
        "exit_signal": ending.exit_signal,
        "run_time": ending.run_time_s,
    }
