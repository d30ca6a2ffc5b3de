"""Duty watchdog: a thread that ends the process when a duty makes no progress, for the supervisor to start a fresh one.

A process that lives and does nothing looks well from outside. Other launchers take over its claims meanwhile. Under
systemd the unit's own watchdog is fed from here, so that a frozen process is noticed as well. When the whole process
was stopped (a suspended machine, SIGSTOP), so was this thread: its duties then have the full limit again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import socket
import sys
import threading
import time

from launcher import log
from launcher.state import State

EXIT_STATUS = 70  # EX_SOFTWARE: an inner fault
CHECK_S = 1.0
LATE_S = 5.0  # a check that comes so much later than it should: nothing of the process ran meanwhile


def stuck(beats: dict[str, float], now: float, limit_s: float) -> str | None:
    """Name of a duty whose last progress is longer ago than the limit, or None. Times are monotonic seconds."""
    late = {duty: now - at for duty, at in beats.items() if now - at > limit_s}
    return max(late, key=lambda duty: late[duty]) if late else None


class Watchdog:
    def __init__(self, state: State) -> None:
        self._state = state
        self._limit_s = state.config.watchdog_s or math.inf
        self._stop = threading.Event()
        self._looked_at = time.monotonic()
        self._awake_since = -math.inf

    def start(self) -> None:
        if self._limit_s < math.inf or os.environ.get("WATCHDOG_USEC"):
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def look(self, now: float) -> str | None:
        """Name of a duty that is stuck; called every CHECK_S."""
        if now - self._looked_at > CHECK_S + LATE_S:
            log.warning("the process stood still", seconds=round(now - self._looked_at, 1))
            self._awake_since = now
        self._looked_at = now
        beats = {duty: max(at, self._awake_since) for duty, at in dict(self._state.beats).items()}
        return stuck(beats, now, self._limit_s)

    def _watch(self) -> None:
        while not self._stop.wait(CHECK_S):
            duty = self.look(time.monotonic())
            if duty is None:
                notify("WATCHDOG=1")
                continue
            log.error("watchdog: no progress, ending the process", duty=duty, limit_s=self._limit_s)
            faulthandler.dump_traceback(sys.stderr)
            os._exit(EXIT_STATUS)


def notify(message: str) -> None:
    """Tell systemd, where it asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(message.encode(), "\0" + path[1:] if path.startswith("@") else path)
