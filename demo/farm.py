"""The demo's farm: one launcher and a few stock RQDs on this machine, kept running until told to stop.

Run as `python -m demo.farm --directory DIR --dsn DSN`. It stops, and ends all it started, on SIGTERM, and when its
standard input ends without the word `keep` having been sent: so nothing outlives a demo that was killed. Where pg_cron
knows only minutes, it also makes the ticks until pg_cron's first minute begins.

RQDs do not dial the launcher but the door, a relay that holds their calls while the launcher is being restarted. RQD
sends a completion four times within a second and then forgets it: without a door (or a second launcher) frames
that end while the only launcher is down would have to run again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from db.cluster import ROOT, free_port
from demo import processes

HOSTS = 3
HOST_CORES = 2
DOOR_PATIENCE_SECONDS = 60.0
RESTART_AFTER_SECONDS = 0.2  # at once after a crash,
RESTART_SLOW_SECONDS = 2.0  # and slower when it keeps crashing
STOP_SECONDS = 8.0


@dataclass
class Service:
    """One process that is restarted when it ends."""

    name: str
    command: list[str]
    directory: Path
    process: asyncio.subprocess.Process | None = field(default=None)
    starts: int = 0

    async def keep_running(self) -> None:
        """Start it, and again each time it ends; cancelling stops the restarts, not the process."""
        while True:
            started = time.monotonic()
            with (self.directory / f"{self.name}.log").open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *self.command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                    start_new_session=True, env={**os.environ, **processes.environment(self.directory)},
                )  # fmt: skip
            self.starts += 1
            status = await self.process.wait()
            lived = time.monotonic() - started
            print(f"{self.name} ended with status {status} after {lived:.1f} s; starting it again", flush=True)
            await asyncio.sleep(RESTART_AFTER_SECONDS if lived > 5 else RESTART_SLOW_SECONDS)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that is not heard."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            print(f"{self.name} does not stop; killing it", flush=True)
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def hyperthreads() -> int:
    """Threads a core, as RQD works it out; it divides the cores it is told to report by this."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return 1
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    try:
        return max(int(facts.get("siblings", "1")) // int(facts.get("cpu cores", "1")), 1)
    except (ValueError, ZeroDivisionError):
        return 1


def rqd_config(name: str, port: int, door: int) -> str:
    """The configuration file of one RQD."""
    options = {
        "OVERRIDE_HOSTNAME": name,
        "OVERRIDE_CUEBOT": "127.0.0.1",
        "CUEBOT_GRPC_PORT": door,
        "RQD_GRPC_PORT": port,
        "OVERRIDE_CORES": HOST_CORES * hyperthreads(),
        "OVERRIDE_PROCS": 1,
        "OVERRIDE_NIMBY": False,
        "RQD_USE_IP_AS_HOSTNAME": False,
        "RQD_BECOME_JOB_USER": False,
        "RQD_TAGS": "general",
        "DEFAULT_FACILITY": "local",
    }
    lines = ["[Override]", *(f"{key} = {value}" for key, value in options.items())]
    # What RQD copies from its own environment into each frame's.
    return "\n".join([*lines, "", "[UseHostEnvVar]", processes.MARK, ""])


class Door:
    """Relays TCP connections to the launcher's intake, and holds new ones until it listens."""

    def __init__(self, intake: int) -> None:
        self.intake = intake

    async def open(self) -> int:
        """Listen on a free port of loopback and return it."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                inner_reader, inner_writer = await connect(self.intake, DOOR_PATIENCE_SECONDS)
            except TimeoutError:
                return
            with contextlib.closing(inner_writer):
                pairs = ((reader, inner_writer), (inner_reader, writer))
                ways = [asyncio.create_task(_pump(source, sink)) for source, sink in pairs]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)


async def connect(port: int, patience_seconds: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `port` on loopback as soon as somebody listens there. Raises TimeoutError."""
    async with asyncio.timeout(patience_seconds):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Farm:
    """Launcher, door and RQDs of one demo directory."""

    def __init__(self, directory: Path, dsn: str) -> None:
        self.directory = directory
        self.dsn = dsn
        self.tasks: list[asyncio.Task[None]] = []
        self.launcher: Service | None = None
        self.rqds: list[Service] = []

    async def start(self) -> None:
        """Start everything in the order in which nobody has to wait for a retry."""
        intake = free_port()
        config = self.directory / "launcher.toml"
        config.write_text(launcher_config(intake, self.directory))
        command = [sys.executable, "-m", "cli", "--dsn", self.dsn, "launcher", "--config", str(config)]
        self.launcher = Service("launcher", command, self.directory)
        self._watch(self.launcher)
        self.door = Door(intake)
        door = await self.door.open()
        ports = {f"demo-host-{number}": free_port() for number in range(1, HOSTS + 1)}
        await asyncio.to_thread(self._say_where, ports)
        _, writer = await connect(intake, DOOR_PATIENCE_SECONDS)
        writer.close()
        for name, port in ports.items():
            conf = self.directory / f"{name}.conf"
            conf.write_text(rqd_config(name, port, door))
            service = Service(name, [sys.executable, "-m", "rqd", "-c", str(conf)], self.directory)
            self.rqds.append(service)
            self._watch(service)

    def tick(self, seconds: float, every_ms: int) -> None:
        """Tick for that long, in the background."""
        if seconds > 0:
            self.tasks.append(asyncio.create_task(self._tick(seconds, every_ms), name="ticks"))

    async def stop(self) -> None:
        """RQDs first, so that nothing new ends up with a launcher that leaves; then frames, then the launcher."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(service.stop() for service in self.rqds))
        known = {service.process.pid for service in [self.launcher] if service and service.process}
        for process in set(processes.marked(self.directory)) - known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self.launcher:
            await self.launcher.stop()

    def _watch(self, service: Service) -> None:
        self.tasks.append(asyncio.create_task(service.keep_running(), name=service.name))

    async def _tick(self, seconds: float, every_ms: int) -> None:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await connection.execute(
                "call maestro.run(%s * interval '1 ms', %s * interval '1 s')", [every_ms, round(seconds, 3)]
            )

    def _say_where(self, ports: dict[str, int]) -> None:
        """Several RQDs share this machine, so each host's name needs an address with a port."""
        with psycopg.connect(self.dsn, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.executemany(
                "insert into maestro.host_dial (str_name, target) values (%s, %s)"
                " on conflict (str_name) do update set target = excluded.target",
                [(name, f"127.0.0.1:{port}") for name, port in ports.items()],
            )


def launcher_config(intake: int, directory: Path) -> str:
    """The launcher's configuration file."""
    return f'intake = "127.0.0.1:{intake}"\nspool = {json.dumps(str(directory / "spool"))}\n'


async def run(directory: Path, dsn: str, tick_until: float, tick_every_ms: int) -> None:
    """Run the farm until SIGTERM, or until standard input ends without `keep`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    watcher = asyncio.create_task(_watch_parent(stop))
    farm = Farm(directory, dsn)
    farm.tick(tick_until - time.time(), tick_every_ms)
    starting = asyncio.create_task(farm.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        await stopping
    finally:
        for task in (starting, watcher):
            task.cancel()
        await farm.stop()


async def _watch_parent(stop: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if b"keep" not in await reader.read():
        stop.set()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the demo's launcher and RQDs.")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--tick-until", type=float, default=0.0, help="seconds of the epoch")
    parser.add_argument("--tick-every-ms", type=int, default=500)
    options = parser.parse_args()
    asyncio.run(run(options.directory, options.dsn, options.tick_until, options.tick_every_ms))


if __name__ == "__main__":
    main()
