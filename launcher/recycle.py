"""Duty recycle: asks for a drain when a cap on launches or on resident size is reached, so that a leak stays bounded.

Both caps are inclusive and 0 switches them off. The size is looked at while idle, where a high figure means memory that
is kept and not a busy moment; under unbroken load, after a minute of it, between claims.
"""

from __future__ import annotations

import resource
import time

from launcher import log
from launcher.config import Config
from launcher.early import Drain
from launcher.state import State, first_of

SAMPLE_S = 1.0
BUSY_S = 60.0  # without an idle moment for this long, the size is taken as it is


def rss_mb() -> int:
    """Resident size of this process in MiB; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize() // (1024 * 1024)


def due(config: Config, *, launched: int, rss: int, rss_at_start: int, uptime_s: float) -> str | None:
    """Why the process should be recycled now, or None. Sizes in MiB, `launched` is launches finished."""
    if config.recycle_max_launches and launched >= config.recycle_max_launches:
        return f"recycle_max_launches {config.recycle_max_launches} reached"
    cap = config.recycle_max_rss_mb
    if cap and rss >= cap:
        if rss_at_start >= cap and uptime_s < config.recycle_min_uptime_s:
            return None  # a fresh process would be no smaller
        return f"recycle_max_rss_mb {cap} reached with {rss}"
    return None


class Recycle:
    def __init__(self, state: State, drain: Drain) -> None:
        self._state = state
        self._drain = drain
        self._started = self._idle_at = time.monotonic()
        self._rss_at_start = rss_mb()
        self._logged = 0

    def run_once(self) -> None:
        """Look at the caps, and ask for a drain where one is reached. Called between claims as well."""
        state, now = self._state, time.monotonic()
        idle = state.held == 0
        if idle:
            self._idle_at = now
        rss = rss_mb() if idle or now - self._idle_at >= BUSY_S else 0
        if idle and state.launched != self._logged:
            self._logged = state.launched
            log.info("idle", launched=state.launched, rss_mb=rss)
        reason = due(
            state.config, launched=state.launched, rss=rss, rss_at_start=self._rss_at_start,
            uptime_s=now - self._started,
        )  # fmt: skip
        if reason and not self._drain.requested:
            log.info("recycling", reason=reason, launched=state.launched, rss_mb=rss_mb())
            self._drain.request(reason)

    async def run(self) -> None:
        state, cap = self._state, self._state.config.recycle_max_rss_mb
        if cap and self._rss_at_start >= cap:
            log.error(
                "recycle_max_rss_mb is too low: the process starts above it",
                recycle_max_rss_mb=cap, rss_mb=self._rss_at_start,
            )  # fmt: skip
        while not state.draining.is_set():
            self.run_once()
            await first_of(state.draining, timeout_s=SAMPLE_S)
