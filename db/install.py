"""Installs Maestro: migrations (each once, never edited afterwards), then functions and views (replayed every time)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import yoyo

from db import embed
from db.errors import MaestroError, from_database

HERE = Path(__file__).resolve().parent
MIGRATIONS = HERE / "migrations"
FUNCTIONS = HERE / "functions"
EXTENSIONS = ("plpython3u",)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One thing that an installation does: a line for people, and the SQL."""

    title: str
    sql: str


def migration_folders(standalone: bool) -> list[Path]:
    return [MIGRATIONS / "opencue", MIGRATIONS / "maestro"] if standalone else [MIGRATIONS / "maestro"]


def function_steps() -> list[Step]:
    """Functions first, then the views that call them, then the settings' definitions and the grants."""
    files = sorted(FUNCTIONS.glob("*.sql"))
    texts = {path: path.read_text() for path in files}
    is_view = re.compile(r"^create or replace view", re.MULTILINE)
    ordered = [p for p in files if not is_view.search(texts[p])] + [p for p in files if is_view.search(texts[p])]
    steps = [Step(f"function {path.stem}", texts[path]) for path in ordered]
    steps[:0] = [Step("planner modules", sql) for sql in embed.statements()]
    steps.append(Step("settings", "select maestro.define_settings()"))
    steps.append(Step("grants", (HERE / "grants.sql").read_text()))
    return steps


def install(
    connection: psycopg.Connection[Any], standalone: bool, dry_run: bool = False, progress: Progress | None = None
) -> list[str]:
    """Bring the database to this version. Idempotent.

    Arguments: an autocommit connection of a superuser (PL/Python needs one); `standalone` adds OpenCue's tables.
    Result: the lines of what was done (or would be, with `dry_run`).
    Raises MaestroError: an extension is missing, a migration was edited after it ran, OpenCue's tables are absent
    (attached) or present without being ours (standalone).
    """
    tell = progress or (lambda line: None)
    done = []
    _check_extensions(connection)
    _check_tables(connection, standalone)
    pending = _pending(connection, standalone)
    for title in pending:
        done.append(f"migration {title}")
    functions = function_steps()
    done += [step.title for step in functions]
    if dry_run:
        return done
    connection.execute("create schema if not exists maestro")
    for extension in EXTENSIONS:
        connection.execute(f"create extension if not exists {extension}")
    _migrate(connection, standalone, tell)
    with connection.transaction():
        connection.execute("set local check_function_bodies = off")
        connection.execute("set local client_min_messages = warning")
        for step in functions:
            tell(step.title)
            try:
                connection.execute(step.sql)
            except psycopg.Error as error:
                raise MaestroError(f"{step.title}: {from_database(error)}") from error
    if standalone:
        connection.execute(
            "update maestro.setting set value = 'facility' where name = 'mode' and value = default_value"
            " and not exists (select from maestro.tick)"
        )
    return done


def uninstall(connection: psycopg.Connection[Any], purge: bool) -> None:
    """Remove schema maestro and the tick; with `purge`, OpenCue's tables too when this installation made them."""
    standalone = _applied_checksums(connection).keys() & {path.stem for path in _files(MIGRATIONS / "opencue")}
    if purge and not standalone:
        raise MaestroError("--purge removes OpenCue's tables only where install --standalone made them")
    if purge:
        backend = _backend(connection)
        with backend.lock():
            for folder in reversed(migration_folders(standalone=True)):
                migrations = yoyo.read_migrations(str(folder))
                backend.rollback_migrations(backend.to_rollback(migrations))
    connection.execute("drop function if exists public.maestro_tick(boolean, bigint)")
    connection.execute("drop schema if exists maestro cascade")


def _check_extensions(connection: psycopg.Connection[Any]) -> None:
    for extension in EXTENSIONS:
        found = connection.execute("select 1 from pg_available_extensions where name = %s", [extension]).fetchone()
        if not found:
            major = connection.info.server_version // 10000
            raise MaestroError(
                f"extension {extension} is not installed on the server; on Debian: "
                f"apt-get install postgresql-plpython3-{major}"
            )


def _check_tables(connection: psycopg.Connection[Any], standalone: bool) -> None:
    has_opencue = connection.execute("select to_regclass('public.frame') is not null").fetchone()[0]  # type: ignore[index]
    ours = bool(_applied_checksums(connection).keys() & {path.stem for path in _files(MIGRATIONS / "opencue")})
    if standalone and has_opencue and not ours:
        raise MaestroError("the database already has OpenCue's tables; install with --attached beside a Cuebot")
    if not standalone and not has_opencue:
        raise MaestroError("the database has no OpenCue tables; install with --standalone, or name Cuebot's database")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.sql") if not path.name.endswith(".rollback.sql"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _applied_checksums(connection: psycopg.Connection[Any]) -> dict[str, str]:
    exists = connection.execute("select to_regclass('maestro.migration_checksum') is not null").fetchone()
    if not exists or not exists[0]:
        return {}
    return dict(connection.execute("select migration_id, sha256 from maestro.migration_checksum").fetchall())


def _pending(connection: psycopg.Connection[Any], standalone: bool) -> list[str]:
    """Migrations yet to run; raises MaestroError if one that ran was edited since."""
    applied = _applied_checksums(connection)
    pending = []
    for folder in migration_folders(standalone):
        for path in _files(folder):
            if path.stem not in applied:
                pending.append(path.stem)
            elif applied[path.stem] != _digest(path):
                raise MaestroError(
                    f"migration {path.relative_to(HERE.parent)} was edited after it was applied; "
                    "restore it and put the change into a new migration"
                )
    return pending


def _backend(connection: psycopg.Connection[Any]) -> Any:
    """yoyo's own connection to the database that `connection` is connected to."""
    info = connection.info
    user = quote(info.user, safe="")
    secret = f":{quote(info.password, safe='')}" if info.password else ""
    options = {"host": info.host, "port": str(info.port)}
    # The host goes into the query, where a socket directory is as good as a name.
    return yoyo.get_backend(f"postgresql+psycopg://{user}{secret}@/{quote(info.dbname, safe='')}?{urlencode(options)}")


def _migrate(connection: psycopg.Connection[Any], standalone: bool, tell: Progress) -> None:
    connection.execute(
        "create table if not exists maestro.migration_checksum"
        " (migration_id text primary key, sha256 text not null, applied_at timestamptz not null default now())"
    )
    backend = _backend(connection)
    with backend.lock():
        for folder in migration_folders(standalone):
            migrations = yoyo.read_migrations(str(folder))
            for migration in backend.to_apply(migrations):
                tell(f"migration {migration.id}")
                try:
                    backend.apply_one(migration)
                except psycopg.Error as error:
                    raise MaestroError(f"migration {migration.id}: {from_database(error)}") from error
                connection.execute(
                    "insert into maestro.migration_checksum (migration_id, sha256) values (%s, %s)",
                    [migration.id, _digest(folder / f"{migration.id}.sql")],
                )
    backend.connection.close()
