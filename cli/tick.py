"""`maestro tick`: the tick without pg_cron."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import psycopg

from db.connection import connect
from db.errors import MaestroError, from_database
from db.schedule import parse_every

RECONNECT_SECONDS = 1.0
SESSION_SECONDS = 60.0  # a session that plans for days grows; pg_cron's live a minute as well


@click.command()
@click.option("--every", metavar="INTERVAL", help="Go on ticking at this interval (500ms, 2s) until interrupted.")
@click.option("--dry-run", is_flag=True, help="Plan and show, book nothing.")
@click.option("--seed", type=int, help="Seed of the lottery; the same farm and seed give the same plan.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer, a line a tick.")
@click.pass_context
def tick(ctx: click.Context, every: str | None, dry_run: bool, seed: int | None, as_json: bool) -> None:
    """Call the tick from here, once or at an interval."""
    dsn = ctx.obj["dsn"]
    if every is None:
        with connect(dsn) as connection:
            answer = call(connection, dry_run, seed)
        _show(answer, as_json)
        if answer["status"] == "error":
            raise MaestroError(_errors(answer))
        return
    pause = parse_every(every) / 1000
    try:
        _loop(dsn, pause, dry_run, seed, as_json)
    except KeyboardInterrupt:
        return


def call(connection: psycopg.Connection[Any], dry_run: bool, seed: int | None) -> dict[str, Any]:
    """One tick; the answer of maestro_tick (see its comment). Raises MaestroError when it cannot be called."""
    try:
        row = connection.execute("select public.maestro_tick(%s, %s)", [dry_run, seed]).fetchone()
    except psycopg.errors.UndefinedFunction:
        raise MaestroError(
            f"Maestro is not installed in database {connection.info.dbname}; install it first (maestro install)"
        ) from None
    except psycopg.Error as error:
        raise from_database(error) from error
    assert row is not None
    answer: dict[str, Any] = row[0]
    return answer


def _loop(dsn: str | None, pause: float, dry_run: bool, seed: int | None, as_json: bool) -> None:
    """Tick for good; a lost connection is made again, so that a restarted database needs nobody."""
    connection: psycopg.Connection[Any] | None = connect(dsn)
    due = time.monotonic()
    fresh_at = due + SESSION_SECONDS
    while True:
        try:
            if connection is not None and time.monotonic() >= fresh_at:
                connection.close()
                connection = None
            if connection is None:
                connection = connect(dsn)
                fresh_at = time.monotonic() + SESSION_SECONDS
            _show(call(connection, dry_run, seed), as_json)
            if not dry_run:
                _write_history(connection)
            if _is_full(connection):
                fresh_at = time.monotonic()
        except MaestroError as error:
            if connection is not None and not connection.closed and not connection.broken:
                raise
            click.echo(f"maestro: {error}; trying again", err=True)
            connection = None
            time.sleep(RECONNECT_SECONDS)
        # A slow tick shortens the pause after it; missed ticks are not made up for.
        due = max(due + pause, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))


def _write_history(connection: psycopg.Connection[Any]) -> None:
    """Between ticks, as maestro.run does: on a busy farm the sweep alone would let it lag."""
    try:
        connection.execute("select maestro.drain_history()")
    except psycopg.Error as error:
        raise from_database(error) from error


def _is_full(connection: psycopg.Connection[Any]) -> bool:
    """Whether the session has grown past session_max_mb."""
    try:
        row = connection.execute("select maestro.session_is_full()").fetchone()
    except psycopg.Error as error:
        raise from_database(error) from error
    return bool(row and row[0])


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer))
    elif answer["status"] == "locked":
        click.echo("another tick is running")
    elif answer["status"] == "off":
        click.echo("setting mode is off: nothing planned")
    elif answer["status"] == "error":
        click.echo(f"tick {answer['tick_id']}: {_errors(answer)}", err=True)
    else:
        name = "dry run" if answer.get("dry_run") else f"tick {answer['tick_id']}"
        waiting = ", ".join(f"{reason} {count}" for reason, count in answer.get("waiting", {}).items() if count)
        click.echo(
            f"{name}: "
            f"booked {answer['committed']} of {answer['planned']}, "
            f"idle {answer['idle_cores']} of {answer['cores']} cores on {answer['hosts']} hosts, "
            f"waiting: {waiting or 'none'} ({answer['ms']['total']} ms)"
        )
        for error in answer.get("errors", []):
            click.echo(f"  {error['what']}: {error['message']}", err=True)


def _errors(answer: dict[str, Any]) -> str:
    return "; ".join(f"{error['what']}: {error['message']}" for error in answer.get("errors", [])) or "it failed"
