"""A small farm for the launcher's tests: real database, real ticks, real gRPC, fake RQDs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from db.cluster import ROOT
from launcher.config import Config
from launcher.daemon import Daemon
from sim.fake_rqd import KIB_PER_GIB, FakeHost, FakeRqd

DEADLINE_S = 30.0
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "db/functions")])

# Everything quick, so that a test of a timeout takes a second.
QUICK = Config(
    intake="", claim_batch=200, launch_deadline_s=1.0, confirm_gap_s=0.1, retry_first_s=0.1, poll_s=0.2, verify_s=0.2,
    heartbeat_s=0.3, drain_grace_s=5.0, watchdog_s=0,
)  # fmt: skip


class Farm:
    """Hosts that one FakeRqd stands for, and what the tests ask of the database."""

    def __init__(self, db: psycopg.Connection[Any], dsn: str, spool: Path) -> None:
        self.db = db
        self.dsn = dsn
        self.spool = spool
        self.config = replace(QUICK, spool=str(spool))
        self.fake = FakeRqd()
        self.target = ""

    async def start(self, hosts: int = 1, cores: int = 8) -> None:
        """`hosts` hosts h0, h1, … of `cores` cores, dialled at the fake."""
        self.target = await self.fake.start()
        # Short enough for tests, long enough for a loaded machine.
        self.set("launch_claim_seconds", 3)
        self.set("launch_confirm_seconds", 1)
        self.set("layer_host_max_frac", 0)  # one layer may fill a host: these tests count launches
        for number in range(hosts):
            self.add_host(f"h{number}", cores)

    def add_host(self, name: str, cores: int = 8, target: str | None = None) -> FakeHost:
        host = self.fake.hosts[name] = FakeHost(name, cores=cores * 100, mem=cores * 4 * KIB_PER_GIB)
        self.report_startup(name)
        self.db.execute("insert into maestro.host_dial values (%s, %s)", [name, target or self.target])
        return host

    def report_startup(self, name: str) -> None:
        host = self.fake.hosts[name]
        report = {
            "host": {
                "name": name, "num_procs": 1, "cores_per_proc": host.cores, "total_mem": host.mem,
                "free_mem": host.mem, "total_mcp": 10 * KIB_PER_GIB, "free_mcp": 10 * KIB_PER_GIB,
                "tags": ["general"], "attributes": {"SP_OS": "Linux"}, "boot_time": 1,
            },
            "core_info": {"total_cores": host.cores, "idle_cores": host.cores},
        }  # fmt: skip
        self.one("select maestro.report_startup(%s::jsonb)", json.dumps(report))

    def set(self, name: str, value: object) -> None:
        self.db.execute("update maestro.setting set value = %s where name = %s", [str(value), name])

    def one(self, sql: str, *arguments: object) -> Any:
        row = self.db.execute(sql, arguments).fetchone()
        return row[0] if row else None

    def submit(self, frames: int, name: str = "job", **layer: Any) -> str:
        """A job of one layer of one-core frames; returns its pk_job."""
        spec = {
            "show": "demo", "shot": "s01", "user": "artist",
            "jobs": [{
                "name": name, "maxcores": "10000",
                "layers": [{
                    "name": "comp", "cmd": "render #IFRAME#", "range": f"1-{frames}", "chunk": 1, "cores": "1.0",
                    "memory": "256m", "tags": "general", **layer,
                }],
            }],
        }  # fmt: skip
        return str(self.one("select maestro.submit_job(%s::jsonb)", json.dumps(spec))["jobs"][0]["pk_job"])

    def tick(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.one("select maestro_tick()")
        assert not answer["errors"], answer["errors"]
        return answer

    def book(self, frames: int, **layer: Any) -> None:
        """Submit a job and book all of it."""
        self.submit(frames, **layer)
        assert self.tick()["committed"] == frames

    def states(self) -> dict[str, int]:
        """Frame state -> number of frames."""
        return dict(self.db.execute("select str_state, count(*) from frame group by 1").fetchall())

    def open_launches(self) -> int:
        return int(self.one("select count(*) from maestro.launch where state <> 'refused'"))

    async def until(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait until the database says so; TimeoutError else."""
        async with asyncio.timeout(timeout_s):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - what changes is in the database
                await asyncio.sleep(0.02)

    def check(self) -> None:
        """The books balance."""
        assert self.db.execute("select * from maestro.check_accounting()").fetchall() == []

    @asynccontextmanager
    async def launcher(self, **changes: Any) -> AsyncIterator[Daemon]:
        """A launcher in this process, drained at the end."""
        daemon = Daemon(replace(self.config, **changes).validate(), self.dsn)
        task = asyncio.create_task(daemon.run())
        try:
            if daemon.intake:
                ready = asyncio.ensure_future(daemon.ready.wait())
                await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                self.fake.report_to(f"127.0.0.1:{daemon.intake.port}")
            yield daemon
        finally:
            daemon.drain.request("test over")
            await asyncio.wait_for(task, DEADLINE_S)

    async def end(self) -> None:
        await self.fake.stop()


@asynccontextmanager
async def process(
    farm: Farm, *arguments: str, program: str = sys.executable, **changes: object
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A launcher process, killed at the end if it still runs; its log is its stderr.

    Started as a supervisor starts it, or by Python with the arguments given.
    """
    module = ("-m", "cli") if program == sys.executable else ()
    arguments = arguments or (*module, "--dsn", farm.dsn, "launcher")
    names = {**{key: getattr(farm.config, key) for key in farm.config.__dataclass_fields__}, **changes}
    environment = {f"MAESTRO_{key.upper()}": str(value) for key, value in names.items()}
    child = await asyncio.create_subprocess_exec(
        program, *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": PATHS, **environment}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
