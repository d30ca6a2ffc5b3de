"""What the duties of one launcher process share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from launcher.config import Config
from launcher.db import Link
from launcher.metrics import Metrics
from launcher.rqd import Rqds


@dataclass
class State:
    """One launcher's identity, its settings from the database, and the events its duties wait on."""

    config: Config
    dsn: str
    rqds: Rqds
    metrics: Metrics
    launcher_id: int = 0
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    # Set once a drain is asked for: claim nothing more.
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when everything in flight is finished: heartbeat, intake and metrics end last.
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    # There may be launches or orders to claim.
    wake_launch: asyncio.Event = field(default_factory=asyncio.Event)
    wake_orders: asyncio.Event = field(default_factory=asyncio.Event)
    claim_seconds: float = 15.0
    confirm_seconds: float = 20.0
    heard_at: float = field(default_factory=time.monotonic)  # last heartbeat that the database took
    launched: int = 0  # launches finished, whatever came out
    held: int = 0  # launches claimed and not yet finished
    health: dict[str, object] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    beats: dict[str, float] = field(default_factory=dict)  # duty -> monotonic time of its last progress

    def link(self, duty: str) -> Link:
        """A connection of a duty's own. The duty closes it at its end; one that was cut short leaves it to `close`."""
        self.links.append(Link(self.dsn, duty))
        return self.links[-1]

    async def close(self) -> None:
        for link in self.links:
            await link.close()
        self.rqds.close()

    def beat(self, duty: str) -> None:
        """A duty made progress; the watchdog looks at the age of this."""
        self.beats[duty] = time.monotonic()

    def rest(self, duty: str) -> None:
        """A duty ended as it should: the watchdog forgets it."""
        self.beats.pop(duty, None)

    def holds_claims(self) -> bool:
        """Whether our claims certainly stand. After a silence another launcher may have taken them over.

        Half of the time leaves the rest for a call in flight. A process that was stopped and goes on finds itself late.
        """
        return time.monotonic() - self.heard_at < self.claim_seconds / 2 + self.config.heartbeat_s

    def drain(self) -> None:
        self.draining.set()
        self.wake_launch.set()
        self.wake_orders.set()


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait until one of the events is set, or the time is over."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
