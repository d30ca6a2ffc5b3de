"""A streaming standby of a private cluster, and how one loses the other: for what a failover is to survive."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.cluster import Cluster, free_port
from db.connection import connect
from db.errors import MaestroError


@dataclass(frozen=True)
class Pair(Cluster):
    """A primary that may have a standby: connections go to whichever of the two takes writes."""

    standby: Path | None = None  # its directory

    def dsn(self, database: str = "maestro") -> str:
        if self.standby is None:
            return super().dsn(database)
        ports = f"{self.port()},{(self.standby / 'port').read_text()}"
        return (
            f"host=127.0.0.1,127.0.0.1 port={ports} user=postgres dbname={database} target_session_attrs=read-write"
            " connect_timeout=5"
        )


@contextlib.contextmanager
def standby_of(primary: Cluster) -> Iterator[Cluster]:
    """A streaming standby that the primary waits for at every commit; destroyed at the end."""
    made = Cluster(primary.directory.parent / "standby")
    made.directory.mkdir()
    status = primary.directory.stat()
    os.chown(made.directory, status.st_uid, status.st_gid)
    (made.directory / "port").write_text(str(free_port()))
    try:
        made._run(
            "pg_basebackup", "-D", str(made.data), "-R", "-X", "stream", "-c", "fast", "-d", primary.dsn("postgres"),
        )  # fmt: skip
        made.start()
        with connect(primary.dsn("postgres")) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
            wait(
                "the standby streams",
                lambda: connection.execute("select 1 from pg_stat_replication where sync_state = 'sync'").fetchone(),
            )
        yield made
    finally:
        made.destroy()


def promote(standby: Cluster) -> None:
    standby._run("pg_ctl", "-D", str(standby.data), "-w", "promote")


def kill_server(cluster: Cluster) -> None:
    """kill -9 of the postmaster: its children notice and end."""
    lock = cluster.data / "postmaster.pid"
    os.kill(int(lock.read_text().splitlines()[0]), signal.SIGKILL)
    wait("the server's processes are gone", lambda: not _alive_in(cluster.data))
    # Where nobody takes note of the dead process, in a container, its id would look alive to the next start.
    lock.unlink()


def _alive_in(directory: Path) -> bool:
    """Whether a process works in the directory, as every PostgreSQL process does in its data directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile; a dead one has no directory
            if (process / "cwd").readlink() == directory:
                return True
    return False


def wait(what: str, condition: Callable[[], Any], within_s: float = 60.0) -> None:
    """Return once the condition holds. Raises MaestroError, naming `what`, after the time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise MaestroError(f"not within {within_s:g} s: {what}")
        time.sleep(0.02)
