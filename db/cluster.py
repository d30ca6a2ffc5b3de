"""The private PostgreSQL cluster: made, started and stopped by us, never the system's own.

As root the server runs as user `postgres`, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from db import packages
from db.errors import MaestroError

ROOT = Path(__file__).resolve().parent.parent
# Everything that running leaves behind; another place keeps two runs from meeting.
VAR = Path(os.environ.get("MAESTRO_VAR") or ROOT / "var").absolute()

# Why each: fsync stays on (the default), so that figures are honest; the rest suits a scheduler's short hot tables.
SETTINGS = {
    "shared_buffers": "'1GB'",
    "work_mem": "'64MB'",
    "maintenance_work_mem": "'256MB'",
    "max_wal_size": "'4GB'",
    "checkpoint_timeout": "'15min'",
    "effective_cache_size": "'8GB'",
    "max_connections": "100",
    "listen_addresses": "'127.0.0.1'",
    "shared_preload_libraries": "'pg_cron'",
    "cron.database_name": "'maestro'",
    "cron.use_background_workers": "on",  # no password or pg_hba entry needed for the job's own connection
    "cron.log_run": "on",
    "max_worker_processes": "16",
    "jit": "off",  # compiling costs more than these short queries take
    "log_min_messages": "warning",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "5s",  # rows that ticks replace are swept up before reading passes thousands of them
}


def binaries() -> Path:
    """The bin directory of the newest installed PostgreSQL, 14 or later. Raises MaestroError if there is none."""
    found = sorted(
        (int(path.parent.name), path)
        for path in Path("/usr/lib/postgresql").glob("*/bin")
        if path.parent.name.isdigit() and (path / "initdb").exists()
    )
    if found and found[-1][0] >= 14:
        return found[-1][1]
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    raise MaestroError("no PostgreSQL server found; install PostgreSQL 14 or later with plpython3u, pg_cron and pgTAP")


def reachable(directory: Path) -> Path:
    """`directory`, or a stand-in for it when user `postgres` may not enter a folder above it (say, /root)."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in directory.parents):
        return directory
    name = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    return Path("/var/tmp") / f"maestro-{name}"


def free_port() -> int:
    """A TCP port that was free a moment ago on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@dataclass(frozen=True)
class Cluster:
    """One cluster: its directory holds `data`, the log, and the port in a file."""

    directory: Path
    extra: tuple[tuple[str, str], ...] = ()

    @classmethod
    def default(cls) -> Cluster:
        return cls(reachable(VAR) / "pg")

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "postgresql.log"

    def port(self) -> int:
        return int((self.directory / "port").read_text())

    def dsn(self, database: str = "maestro") -> str:
        return f"host=127.0.0.1 port={self.port()} user=postgres dbname={database}"

    def running(self) -> bool:
        return self.data.exists() and self._run("pg_ctl", "-D", str(self.data), "status", check=False).returncode == 0

    def start(self) -> None:
        """Make the cluster if there is none, and start it; a running one is left alone."""
        if self.running():
            return
        packages.ensure()
        if not self.data.exists():
            self._initdb()
        if not _is_free(self.port()):
            (self.directory / "port").write_text(str(free_port()))
        started = self._run(
            "pg_ctl", "-D", str(self.data), "-l", str(self.log), "-o", f"-p {self.port()}", "-w", "-t", "60", "start",
            check=False,
        )  # fmt: skip
        if started.returncode != 0:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-1:] if self.log.exists() else []
            raise MaestroError(f"the private cluster does not start, see {self.log}: {' '.join(tail)}")
        created = self._run(
            "psql", "-X", "-q", self.dsn("postgres"), "-tAc",
            "select 1 from pg_database where datname = 'maestro'",
        )  # fmt: skip
        if created.stdout.strip() != "1":
            self._run("psql", "-X", "-q", self.dsn("postgres"), "-c", "create database maestro")

    def stop(self, mode: str = "fast") -> None:
        if self.running():
            self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def destroy(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _initdb(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
            "--locale=C.UTF-8", "--lc-collate=C",  # keys compare as bytes: every index of uuid text gains
        )  # fmt: skip
        # TCP on loopback only: a socket's path has a length limit that a deep checkout passes.
        lines = ["unix_socket_directories = ''"]
        lines += [f"{name} = {value}" for name, value in {**SETTINGS, **dict(self.extra)}.items()]
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("\n# Maestro's private cluster\n" + "\n".join(lines) + "\n")
        (self.directory / "port").write_text(str(free_port()))

    def _run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        path = binaries() / program
        command = [str(path) if path.exists() else program, *arguments]
        user = "postgres" if os.geteuid() == 0 else None
        done = subprocess.run(
            command, user=user, group=user, extra_groups=[] if user else None, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        ) if program != "pg_ctl" or "start" not in arguments else _run_detached(command, user)  # fmt: skip
        if check and done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise MaestroError(f"{program} failed: {' '.join(reason) or f'status {done.returncode}'}")
        return done


def _run_detached(command: list[str], user: str | None) -> subprocess.CompletedProcess[str]:
    """pg_ctl start: the server inherits our streams, so they must not be pipes that we wait on.

    Its own session keeps the server alive when the terminal's Ctrl-C goes to our process group.
    """
    return subprocess.run(
        command, user=user, group=user, extra_groups=[] if user else None, cwd="/", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
