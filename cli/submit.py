"""`maestro submit`: a job spec from a file into the database."""

from __future__ import annotations

import json

import click

from db.connection import connect
from submit.api import submit_file


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
@click.pass_context
def submit(ctx: click.Context, file: str, as_json: bool) -> None:
    """Submit FILE, an OpenCue job spec in XML or its JSON form (- is standard input).

    Prints the id of each job, a line each; Post layers follow their job as one of their own.
    """
    with connect(ctx.obj["dsn"]) as connection:
        answer = submit_file(connection, file)
    for warning in answer["warnings"]:
        click.echo(f"maestro: warning: {warning}", err=True)
    for job in answer["jobs"]:
        click.echo(job["pk_job"])
    if as_json:
        click.echo(json.dumps(answer))
