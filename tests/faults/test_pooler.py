"""Behind a transaction pooler notifications cannot arrive: the launcher says so once and finds its work by polling."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from db import packages
from db.cluster import free_port
from tests.faults.busy import busy_farm
from tests.faults.chaos import ticking
from tests.faults.clusters import wait

FRAMES = 60
CONFIG = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
pool_mode = transaction
max_client_conn = 100
default_pool_size = 4
"""


@contextlib.contextmanager
def pooler(dsn: str) -> Iterator[str]:
    """PgBouncer in transaction mode, fewer sessions than a launcher has connections; the DSN that goes through it."""
    packages.ensure(("pgbouncer",))
    server, port = psycopg.conninfo.conninfo_to_dict(dsn)["port"], free_port()
    # Not tmp_path: user postgres may not enter it.
    directory = Path(tempfile.mkdtemp(prefix="maestro-pooler-"))
    directory.chmod(0o755)
    (directory / "users").write_text('"postgres" ""\n')
    (directory / "config").write_text(CONFIG.format(server=server, port=port, directory=directory))
    user = "postgres" if os.geteuid() == 0 else None
    process = subprocess.Popen(
        ["pgbouncer", str(directory / "config")], user=user, group=user, extra_groups=[] if user else None, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait(lambda: _answers(port))
        yield psycopg.conninfo.make_conninfo(dsn, port=port)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_behind_pgbouncer_in_transaction_mode_the_launcher_works_by_polling_and_says_so_once(
    dsn: str, tmp_path: Path
) -> None:
    with pooler(dsn) as pooled:
        async with busy_farm(dsn, tmp_path, FRAMES, launcher_dsn=pooled) as farm:
            await farm.until(
                lambda: farm.one("select count(*) from maestro.launcher where health ->> 'listen' = 'false'") == 2
            )
            with ticking(dsn, 0.3):
                await farm.until_done(FRAMES)
            farm.ran_once(FRAMES)
    for number in (0, 1):
        log = (tmp_path / f"launcher{number}.log").read_text()
        assert log.count("notifications do not arrive") == 1
        assert "Traceback" not in log
        assert "prepared statement" not in log
