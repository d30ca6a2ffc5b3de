"""What goes wrong while the farm works: launchers that are killed, ticks whose backend is ended, at seeded moments."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
import psycopg

from db.cluster import free_port
from sim.processes import LauncherProcess, Ticks
from tests.faults.lossy import LossyRqd

# Quick enough for a test, long enough for a machine that does other work as well.
LAUNCHER = {
    "launch_deadline_s": 1.0, "confirm_gap_s": 0.3, "retry_first_s": 0.1, "poll_s": 0.3, "verify_s": 0.5,
    "heartbeat_s": 0.5, "drain_grace_s": 5.0, "log_level": "info",
}  # fmt: skip
END_TICK = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where datname = current_database() and application_name = 'maestro' and query like '%maestro_tick()%'
        and (state = 'active' or not %s)
"""


@dataclass
class Chaos:
    """Ends what it is given, every so often, until `over`. Counts what it ended."""

    dsn: str
    seed: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    launchers_killed: int = 0
    ticks_ended: int = 0

    async def _pause(self, seconds: float) -> bool:
        """False once it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
        return not self.over.is_set()

    async def kill_launchers(self, launchers: list[LauncherProcess], every_s: float) -> None:
        """kill -9 one after the other; a supervisor starts it again at once."""
        random = Random(self.seed)
        turn = 0
        while await self._pause(every_s * random.uniform(0.7, 1.3)):
            launcher = launchers[turn % len(launchers)]
            turn += 1
            await asyncio.to_thread(launcher.kill)
            self.launchers_killed += 1
            launcher.start_again()

    async def end_ticks(self, every_s: float) -> None:
        """End the session that ticks, most often in the middle of a tick."""
        random = Random(self.seed + 1)
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            while await self._pause(every_s * random.uniform(0.5, 1.5)):
                in_tick = random.random() < 0.8
                until = time.monotonic() + 2
                ended = 0
                while not ended and time.monotonic() < until:
                    row = await (await connection.execute(END_TICK.replace("%s", str(in_tick)))).fetchone()
                    ended = row[0] if row else 0
                self.ticks_ended += ended


async def report_states(fake: LossyRqd, every_s: float) -> None:
    """Every host reports once an interval, for good."""
    while True:
        for name in list(fake.hosts):
            with contextlib.suppress(grpc.RpcError):
                await fake.report_status(name)
            await asyncio.sleep(every_s / len(fake.hosts))


@contextlib.asynccontextmanager
async def launchers(
    dsn: str, directory: Path, number: int, **options: Any
) -> AsyncIterator[tuple[list[LauncherProcess], list[str]]]:
    """Launcher processes and their intakes."""
    intakes = [f"127.0.0.1:{free_port()}" for _ in range(number)]
    made = [
        LauncherProcess(dsn, directory, intake, f"launcher{place}", **{**LAUNCHER, **options})
        for place, intake in enumerate(intakes)
    ]
    try:
        yield made, intakes
    finally:
        for launcher in made:
            await asyncio.to_thread(launcher.stop)


@contextlib.contextmanager
def ticking(dsn: str, every_s: float) -> Any:
    ticks = Ticks(dsn, every_s).start()
    try:
        yield ticks
    finally:
        ticks.stop()
