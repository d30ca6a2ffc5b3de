"""`maestro test`: every check, quiet while green."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
    steps: list[tuple[str, Callable[[], tuple[bool, str]]]] = []
    if not _selects(pytest_args):
        steps += [
            ("ruff", lambda: run(PYTHON, "-m", "ruff", "check", "--quiet")),
            ("mypy", lambda: run(PYTHON, "-m", "mypy", "--no-error-summary")),
            ("sqlfluff", lambda: run(*SQLFLUFF, *_present(SQL_FOLDERS))),
            ("pgtap", pgtap),
        ]
    steps.append(("pytest", lambda: run(PYTHON, "-m", "pytest", *_pytest_options(fast, soak), *pytest_args)))
    failed = [name for name, step in steps if not _report(name, step)]
    if failed:
        raise MaestroError(f"failed: {', '.join(failed)}")


def run(*command: str, environment: dict[str, str] | None = None) -> tuple[bool, str]:
    """Whether the command succeeded, and all it printed. It runs in the checkout."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    return done.returncode == 0, done.stdout


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
    click.echo(f"{name:<9} {'ok' if passed else 'FAILED':<6} {seconds:6.1f} s")
    if not passed:
        click.echo(output.rstrip())
    elif name == "pytest":
        click.echo(output.rstrip().splitlines()[-1])
    return passed


def _pytest_options(fast: bool, soak: bool) -> list[str]:
    options = ["--ignore=tests/e2e"] if fast else []
    return options if soak else [*options, "-m", "not soak"]


def _selects(arguments: tuple[str, ...]) -> bool:
    return any(
        argument in ("-k", "-m") or argument.startswith(("-k", "-m")) or Path(argument.split("::")[0]).exists()
        for argument in arguments
    )


def _present(folders: tuple[str, ...]) -> list[str]:
    return [folder for folder in folders if (ROOT / folder).is_dir()]


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
