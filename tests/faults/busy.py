"""A farm at work in a database that a test takes away: fake RQDs with logs, two launcher processes, ticks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.chaos import launchers, report_states
from tests.faults.lossy import LossyRqd
from tests.launcher.farm import Farm


class BusyFarm(Farm):
    """Asks the database over a connection of its own, made anew when the server went away."""

    def reconnect(self, dsn: str | None = None) -> None:
        self.dsn = dsn or self.dsn
        self.db.close()
        self.db = psycopg.connect(self.dsn, autocommit=True)

    def succeeded(self) -> int:
        return int(self.one("select count(*) from frame where str_state = 'SUCCEEDED'"))

    async def until_busy(self, done: int) -> None:
        """Until more than `done` frames have succeeded and some run: the moment to take the database away."""
        await self.until(lambda: self.succeeded() > done and any(host.running for host in self.fake.hosts.values()))

    async def until_done(self, frames: int, within_s: float = 90.0) -> None:
        await self.until(
            lambda: self.one(
                "select (select count(*) from frame where str_state = 'SUCCEEDED') = %s"
                " and not exists (select from proc) and not exists (select from maestro.completion)", frames,
            ),
            within_s,
        )  # fmt: skip

    def ran_once(self, frames: int) -> None:
        """Every frame was started once and succeeded once, and the books balance."""
        fake = self.fake
        assert isinstance(fake, LossyRqd)
        assert fake.overlaps == []
        assert Counter(fake.starts.values()) == {1: frames}
        assert Counter(fake.successes.values()) == {1: frames}
        assert self.states() == {"SUCCEEDED": frames}
        self.check()


@contextlib.asynccontextmanager
async def busy_farm(
    dsn: str, directory: Path, frames: int, launcher_dsn: str | None = None, hosts: int = 8, **options: Any
) -> AsyncIterator[BusyFarm]:
    """A farm that has work for a while; nobody ticks yet. `launcher_dsn`: where launchers connect, if elsewhere."""
    farm = BusyFarm(psycopg.connect(dsn, autocommit=True), dsn, directory / "spool")
    fake = farm.fake = LossyRqd(seed=3, drop=0.0, repeat=0.0)
    try:
        await farm.start(hosts=hosts, cores=4)
        farm.set("log_root", directory / "logs")
        farm.set("launch_confirm_seconds", 2)
        async with launchers(launcher_dsn or dsn, directory, 2, **options) as (_, intakes):
            fake.report_to_any(intakes)
            reporting = asyncio.create_task(report_states(fake, 2.0))
            farm.submit(frames)
            try:
                yield farm
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)
    finally:
        await farm.end()
        farm.db.close()
