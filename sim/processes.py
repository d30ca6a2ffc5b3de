"""The processes of a simulated farm: the fake farm, launchers, and the caller of ticks. Each ends with its context."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from db.cluster import ROOT, free_port
from db.connection import connect
from db.errors import MaestroError

STOP_SECONDS = 20.0
START_SECONDS = 30.0
_PATHS = os.pathsep.join([str(ROOT), str(ROOT / "db/functions")])


def _environment(**more: str) -> dict[str, str]:
    """Ours without MAESTRO_… and PG… variables, which would steer the children."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAESTRO_", "PG"))}
    return {**kept, "PYTHONPATH": _PATHS, **more}


def _profile(name: str) -> list[str]:
    """With SIM_PROFILE=DIRECTORY each process leaves a cProfile there."""
    directory = os.environ.get("SIM_PROFILE")
    return ["-m", "cProfile", "-o", str(Path(directory) / f"{name}.prof")] if directory else []


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used, its threads included; 0 where /proc is not there."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class FarmProcess:
    """The fake farm (sim/farm_process.py) in a process of its own."""

    def __init__(
        self, hosts: Path, intake: str, behaviour: dict[str, Any], directory: Path, port: int = 0,
        log: Path | None = None,
    ) -> None:  # fmt: skip
        command = [
            sys.executable, *_profile("farm"), "-m", "sim.farm_process", "--hosts", str(hosts), "--intake", intake,
            "--port", str(port), "--behaviour", json.dumps(behaviour), *(["--log", str(log)] if log else []),
        ]  # fmt: skip
        self.errors = directory / "farm.log"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=_environment(),
                start_new_session=True,
            )  # fmt: skip
        self._turn = threading.Lock()
        try:
            self.target = f"127.0.0.1:{self._read()['port']}"
        except BaseException:
            self.stop()
            raise

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise MaestroError(f"the fake farm ended: {_tail(self.errors)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MaestroError(f"the fake farm refused: {answer['error']}")
        return answer

    def tell(self, do: str, hosts: list[str] | None = None, **more: Any) -> dict[str, Any]:
        """Give a command (FakeFarm.obey) and wait for its answer, the farm's totals for most."""
        with self._turn:
            assert self.process.stdin
            self.process.stdin.write(json.dumps({"do": do, "hosts": hosts or [], **more}).encode() + b"\n")
            self.process.stdin.flush()
            return self._read()

    def stats(self) -> dict[str, Any]:
        return self.tell("stats")

    def stop(self) -> None:
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        _end(self.process, None)
        if self.process.stdout:
            self.process.stdout.close()


class LauncherProcess:
    """`maestro launcher` as a supervisor starts it; options are the fields of its configuration."""

    def __init__(self, dsn: str, directory: Path, intake: str, name: str = "launcher", **options: object) -> None:
        self.name = name
        self._dsn = dsn
        self._options = {"intake": intake, "spool": directory / f"{name}.spool", "log_level": "warning", **options}
        self.log = directory / f"{name}.log"
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        variables = {f"MAESTRO_{key.upper()}": str(value) for key, value in self._options.items()}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *_profile(self.name), "-m", "cli", "--dsn", self._dsn, "launcher"], cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(**variables), start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """What its supervisor does after it has ended."""
        self.process = self._spawn()

    def check(self) -> None:
        """Raises MaestroError if it has ended."""
        if self.process.poll() is not None:
            raise MaestroError(f"the launcher ended with status {self.process.returncode}: {_tail(self.log)}")

    def stop(self) -> None:
        _end(self.process, signal.SIGTERM)


class Ticks:
    """Ticks in a thread, at an interval, as pg_cron does; a lost connection is made again."""

    def __init__(self, dsn: str, every_s: float = 0.5, on_tick: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.answers: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._dsn = dsn
        self._every_s = every_s
        self._on_tick = on_tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticks", daemon=True)

    def start(self) -> Ticks:
        self._thread.start()
        return self

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        due = time.monotonic()
        while not self._over.is_set():
            try:
                connection = connection or connect(self._dsn)
                began = time.perf_counter()
                row = connection.execute("select public.maestro_tick()").fetchone()
                assert row is not None
                answer = {**row[0], "client_ms": (time.perf_counter() - began) * 1000, "at": time.time()}
                self.answers.append(answer)
                if self._on_tick:
                    self._on_tick(answer)
            except (psycopg.Error, MaestroError) as error:
                self.failures.append(str(error).strip().splitlines()[0])
                if connection is not None:
                    with contextlib.suppress(psycopg.Error):
                        connection.close()
                connection = None
            due = max(due + self._every_s, time.monotonic())
            self._over.wait(due - time.monotonic())
        if connection is not None:
            connection.close()

    def wrong(self) -> list[str]:
        """What went wrong: calls that failed, ticks that ended in an error, and what they complained about."""
        found = list(self.failures)
        for answer in self.answers:
            found += [f"{error['what']}: {error['message']}" for error in answer.get("errors", [])]
        return found

    def stop(self) -> None:
        self._over.set()
        self._thread.join(STOP_SECONDS * 3)


class Stage:
    """Everything around the database: one launcher (or more), the fake farm, ticks. See `stage`."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.directory = directory
        self.intake = f"127.0.0.1:{free_port()}"
        self.launchers: list[LauncherProcess] = []
        self._farm: FarmProcess | None = None
        self._ticks: Ticks | None = None

    @property
    def farm(self) -> FarmProcess:
        assert self._farm
        return self._farm

    @property
    def ticks(self) -> Ticks:
        assert self._ticks
        return self._ticks

    def start_farm(self, hosts: Path, behaviour: dict[str, Any], log: Path | None = None) -> FarmProcess:
        self._farm = FarmProcess(hosts, self.intake, behaviour, self.directory, log=log)
        return self._farm

    def start_launcher(self, **options: object) -> LauncherProcess:
        name = f"launcher{len(self.launchers)}"
        made = LauncherProcess(self.dsn, self.directory, self.intake, name, **options)
        self.launchers.append(made)
        return made

    def await_launchers(self, connection: psycopg.Connection[Any]) -> None:
        """Return when every launcher has registered and the database hears of it."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for launcher in self.launchers:
                launcher.check()
            row = connection.execute(
                "select count(*) from maestro.launcher where pid = any(%s)",
                [[launcher.process.pid for launcher in self.launchers]],
            ).fetchone()
            if row and row[0] == len(self.launchers):
                return
            time.sleep(0.05)
        raise MaestroError(f"no launcher within {START_SECONDS:.0f} s: {_tail(self.launchers[0].log)}")

    def start_ticks(self, every_s: float = 0.5, on_tick: Callable[[dict[str, Any]], None] | None = None) -> Ticks:
        self._ticks = Ticks(self.dsn, every_s, on_tick).start()
        return self._ticks

    def stop_ticks(self) -> None:
        if self._ticks:
            self._ticks.stop()

    def stop(self) -> None:
        self.stop_ticks()
        if self._farm:
            self._farm.stop()
        for launcher in self.launchers:
            launcher.stop()


@contextlib.contextmanager
def stage(dsn: str, directory: Path) -> Iterator[Stage]:
    """A stage whose processes end with the context."""
    made = Stage(dsn, directory)
    try:
        yield made
    finally:
        made.stop()


def server_cpu_s(connection: psycopg.Connection[Any]) -> float:
    """Processor seconds of the server's living processes."""
    rows = connection.execute("select pid from pg_stat_activity").fetchall()
    return sum(cpu_s(pid) for (pid,) in rows)


def _end(process: subprocess.Popen[bytes], polite: signal.Signals | None) -> None:
    if polite is not None and process.poll() is None:
        process.send_signal(polite)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return " | ".join(path.read_text(errors="replace").strip().splitlines()[-3:])[-1500:]
    return "it left no log"
