"""`maestro db`: the private cluster under var/."""

from __future__ import annotations

import os

import click

from db.cluster import Cluster, binaries
from db.connection import resolve


@click.group()
def db() -> None:
    """The private PostgreSQL cluster under var/ (never the system's own)."""


@db.command()
def start() -> None:
    """Start it, making it first if there is none."""
    cluster = Cluster.default()
    cluster.start()
    click.echo(cluster.dsn())


@db.command()
def stop() -> None:
    """Stop it; its data stay."""
    Cluster.default().stop()


@db.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(yes: bool) -> None:
    """Stop it and delete its data."""
    cluster = Cluster.default()
    if not yes:
        click.confirm(f"Delete the private cluster {cluster.directory} and all its data?", abort=True)
    cluster.destroy()


@db.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def psql(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Open psql on the database (arguments go to psql)."""
    target = resolve(ctx.obj["dsn"])
    program = str(binaries() / "psql")
    os.execv(program, [program, target, *arguments] if target else [program, *arguments])
