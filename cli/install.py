"""`maestro install` and `maestro uninstall`."""

from __future__ import annotations

import click
from rich.progress import Progress, SpinnerColumn, TextColumn

from db import install as installer
from db.connection import connect


@click.command()
@click.option("--standalone", "way", flag_value="standalone", help="No Cuebot: Maestro brings OpenCue's tables.")
@click.option("--attached", "way", flag_value="attached", help="Beside a Cuebot, on its tables.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.pass_context
def install(ctx: click.Context, way: str | None, dry_run: bool) -> None:
    """Install Maestro, or bring it to this version. Doing it again changes nothing."""
    if way is None:
        raise click.UsageError("name the way: --standalone (no Cuebot) or --attached (beside a Cuebot)")
    with connect(ctx.obj["dsn"]) as connection:
        if dry_run:
            for line in installer.install(connection, way == "standalone", dry_run=True):
                click.echo(line)
            return
        with Progress(SpinnerColumn(), TextColumn("{task.description}"), transient=True) as bar:
            task = bar.add_task("installing", total=None)
            installer.install(
                connection, way == "standalone", progress=lambda line: bar.update(task, description=line)
            )
        click.echo(f"Maestro is installed ({way}) in database {connection.info.dbname}.")


@click.command()
@click.option("--purge", is_flag=True, help="Remove OpenCue's tables as well, where --standalone made them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def uninstall(ctx: click.Context, purge: bool, yes: bool) -> None:
    """Remove schema maestro; OpenCue's tables stay unless --purge."""
    with connect(ctx.obj["dsn"]) as connection:
        if not yes:
            what = "Maestro and all of OpenCue's tables" if purge else "schema maestro"
            click.confirm(f"Remove {what} from database {connection.info.dbname}?", abort=True)
        installer.uninstall(connection, purge)
