"""`maestro test`: every check, quiet while green.

Tests that wait for real processes run beside the others, for most of both would be waiting.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import psycopg

from db import packages
from db.cluster import ROOT, Cluster
from db.errors import MaestroError
from db.install import install

PYTHON = sys.executable
SQLFLUFF = (PYTHON, "-m", "sqlfluff", "lint", "--disable-progress-bar")
SQL_FOLDERS = ("db/functions", "db/migrations", "pgtap")

Step = tuple[str, Callable[[], tuple[bool, str]]]  # its name; runs it: whether it passed, and what it printed

_children: set[subprocess.Popen[str]] = set()  # commands under way
_interrupted = threading.Event()
_printing = threading.Lock()


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--fast", is_flag=True, help="Leave out the end-to-end tests (real RQDs, about four minutes).")
@click.option("--soak", is_flag=True, help="Run the long form of the tests marked soak as well.")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def test(fast: bool, soak: bool, pytest_args: tuple[str, ...]) -> None:
    """Run every check: lint, types, pgTAP, pytest, end to end.

    Further arguments go to pytest; when they select tests (a path, -k or -m), only pytest runs.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    packages.ensure(("time", "pg_prove"))
    if failed := in_lanes(_lanes(fast, soak, pytest_args)):
        raise MaestroError(f"failed: {', '.join(failed)}")


def _lanes(fast: bool, soak: bool, pytest_args: Sequence[str]) -> list[list[Step]]:
    """What runs: each lane's steps one after another, the lanes side by side."""
    options = [*pytest_args] if soak else ["-m", "not soak", *pytest_args]
    if _selects(pytest_args):
        return [[("pytest", lambda: pytest(*options))]]
    # These wait most of their time, for processes that were killed and frames that take a while.
    waiting = ["tests/faults"] if fast else ["tests/faults", "tests/e2e"]
    others = [f"--ignore={folder}" for folder in ("tests/faults", "tests/e2e")]
    return [
        [("faults", lambda: pytest(*waiting, *options))],
        [
            ("ruff", lambda: run(PYTHON, "-m", "ruff", "check", "--quiet")),
            ("mypy", lambda: run(PYTHON, "-m", "mypy", "--no-error-summary")),
            ("sqlfluff", lambda: run(*SQLFLUFF, *_present(SQL_FOLDERS))),
            ("pgtap", pgtap),
            ("pytest", lambda: pytest(*others, *options)),
        ],
    ]


def in_lanes(lanes: Sequence[Sequence[Step]]) -> list[str]:
    """Run every lane's steps; the names of those that failed. An interrupt ends the commands under way, and waits."""
    failed: list[str] = []

    def follow(lane: Sequence[Step]) -> None:
        for name, step in lane:
            if not _interrupted.is_set() and not _report(name, step):
                failed.append(name)

    with ThreadPoolExecutor(len(lanes)) as threads:
        ends = [threads.submit(follow, lane) for lane in lanes]
        try:
            for end in ends:
                end.result()
        except KeyboardInterrupt:
            _interrupted.set()
            for child in list(_children):
                child.send_signal(signal.SIGINT)
            raise
    return failed


def run(*command: str, environment: dict[str, str] | None = None) -> tuple[bool, str]:
    """Whether the command succeeded, and all it printed. It runs in the checkout."""
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us: twice would cut its cleaning short
    ) as child:  # fmt: skip
        _children.add(child)
        output, _ = child.communicate()
        _children.discard(child)
    return child.returncode == 0, output


def pytest(*arguments: str) -> tuple[bool, str]:
    """Run pytest with these arguments."""
    return run(PYTHON, "-m", "pytest", *arguments)


def pgtap() -> tuple[bool, str]:
    """Run every file of pgtap/ in a fresh private cluster; each rolls back what it did."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "pgtap").glob("*.sql"))
    if not files:
        return False, "pgtap/ holds no tests"
    directory = Path(tempfile.mkdtemp(prefix="maestro-pgtap-"))
    directory.chmod(0o755)
    cluster = Cluster(directory / "pg", extra=(("shared_buffers", "'256MB'"),))
    try:
        cluster.start()
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            install(connection, standalone=True)
            connection.execute("create extension pgtap")
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(cluster.port()), "PGUSER": "postgres", "PGDATABASE": "maestro"}
        return run("pg_prove", "--quiet", *files, environment=where)
    finally:
        cluster.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def _report(name: str, step: Callable[[], tuple[bool, str]]) -> bool:
    """Run a step; one line when it passes, all of its output when it does not."""
    started = time.monotonic()
    passed, output = step()
    seconds = time.monotonic() - started
    with _printing:
        click.echo(f"{name:<9} {'ok' if passed else 'FAILED':<6} {seconds:6.1f} s")
        if not passed:
            click.echo(output.rstrip())
        elif name in ("faults", "pytest"):
            click.echo(output.rstrip().splitlines()[-1])
    return passed


def _selects(arguments: Sequence[str]) -> bool:
    return any(
        argument in ("-k", "-m") or argument.startswith(("-k", "-m")) or Path(argument.split("::")[0]).exists()
        for argument in arguments
    )


def _present(folders: tuple[str, ...]) -> list[str]:
    return [folder for folder in folders if (ROOT / folder).is_dir()]


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
