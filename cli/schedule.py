"""`maestro schedule` and `maestro unschedule`."""

from __future__ import annotations

import click

from db import schedule as scheduler
from db.connection import connect


@click.command()
@click.option("--every", default="500ms", show_default=True, help="Time from the start of one tick to the next.")
@click.pass_context
def schedule(ctx: click.Context, every: str) -> None:
    """Have pg_cron call the tick; calling it again changes the interval."""
    every_ms = scheduler.parse_every(every)
    with connect(ctx.obj["dsn"]) as connection:
        chosen = scheduler.schedule(connection, every_ms)
        click.echo(f"pg_cron ticks database {connection.info.dbname}: {chosen.schedule!r} runs {chosen.command}")
        click.echo(f"The first tick comes within {chosen.first_within_seconds} seconds.")


@click.command()
@click.pass_context
def unschedule(ctx: click.Context) -> None:
    """Stop pg_cron from calling the tick."""
    with connect(ctx.obj["dsn"]) as connection:
        if not scheduler.unschedule(connection):
            click.echo(f"database {connection.info.dbname} had no schedule")
