"""The command table: names, one-line help, and lazy loading so that a start stays quick."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from db.errors import MaestroError

# command -> (module, attribute, help line)
COMMANDS = {
    "demo": ("cli.demo", "demo", "Render a small job on three stock RQDs on this machine, and show the pictures."),
    "test": ("cli.test", "test", "Run every check: lint, types, pgTAP, pytest, end to end."),
    "db": ("cli.db", "db", "Start, stop, destroy or open the private PostgreSQL cluster."),
    "install": ("cli.install", "install", "Install or upgrade Maestro in the database."),
    "uninstall": ("cli.install", "uninstall", "Remove Maestro from the database."),
    "schedule": ("cli.schedule", "schedule", "Have pg_cron call the tick."),
    "unschedule": ("cli.schedule", "unschedule", "Stop pg_cron from calling the tick."),
    "launcher": ("cli.launcher", "launcher", "Run the launcher daemon in the foreground."),
    "tick": ("cli.tick", "tick", "Call the tick from here, once or at an interval."),
    "submit": ("cli.submit", "submit", "Submit a job spec (OpenCue XML or JSON)."),
    "job": ("cli.job", "job", "List, show and steer jobs."),
    "host": ("cli.host", "host", "List, lock, unlock and drain hosts."),
    "status": ("cli.status", "status", "Farm fill, waitlist, launchers and the stat line."),
    "bench": ("cli.bench", "bench", "Measure the scheduler's speed."),
    "sim": ("cli.sim", "sim", "Simulate farms, and judge how they are scheduled."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when called: `--help` and quick commands stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, help_line = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        command.short_help = help_line
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dsn", metavar="DSN", help="The database; else PG* variables, else the private cluster under var/.")
@click.pass_context
def cli(ctx: click.Context, dsn: str | None) -> None:
    """Maestro schedules a render farm from inside PostgreSQL."""
    ctx.obj = {"dsn": dsn}


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; a known error is one line on stderr and exit status 1 (usage: 2)."""
    try:
        cli.main(args=argv, prog_name="maestro", standalone_mode=True)
    except MaestroError as error:
        click.echo(f"maestro: {error}", err=True)
        sys.exit(1)
