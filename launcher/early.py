"""Signals that mean drain, caught from the process's first line on.

Standard library only and imported before anything else, so that a signal which arrives while the rest is still being
imported is kept: it sets the flag, and the daemon reads the flag at its first check. A parent that starts us may have
blocked the signals until then (`env --block-signal`); they are let through once the handler is in.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Drain:
    """Whether a drain was asked for, by what, and whom to tell."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._listener: Callable[[], None] | None = None

    @property
    def requested(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        """Ask for a drain; the first reason stands. Safe in a signal handler."""
        if self.reason is None:
            self.reason = reason
        if self._listener is not None:
            self._listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at a request, and at once if there was one already."""
        self._listener = listener
        if self.requested:
            listener()


drain = Drain()


def _on_signal(number: int, frame: FrameType | None) -> None:
    drain.request(signal.Signals(number).name)


def is_launcher(arguments: list[str]) -> bool:
    """Whether the command line starts the launcher; the one option before a command is --dsn, which takes a value."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--dsn":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument == "launcher"
    return False


def install() -> None:
    """Put the handlers in and let through what was blocked."""
    for number in SIGNALS:
        signal.signal(number, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
