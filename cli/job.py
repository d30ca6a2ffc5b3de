"""`maestro job`: list, show and steer jobs. Each command calls one function of schema maestro."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row
from rich.console import Console
from rich.table import Table

from db.connection import connect
from db.errors import MaestroError, from_database

LIST = """
    select j.str_name as name, j.pk_job as id,
           case when j.str_state = 'PENDING' and j.b_paused then 'PAUSED' else j.str_state end as state,
           j.str_user as "user", j.str_show as show, r.int_priority as priority, r.int_cores / 100.0 as cores,
           s.int_waiting_count as waiting, s.int_running_count as running, s.int_succeeded_count as succeeded,
           s.int_depend_count as depend, s.int_dead_count as dead, s.int_eaten_count as eaten
      from job j
      join job_stat s on s.pk_job = j.pk_job
      join job_resource r on r.pk_job = j.pk_job
     where %(job)s::text is null and (j.str_state <> 'FINISHED' or %(finished)s) or j.pk_job = %(job)s
     order by j.str_state = 'FINISHED', r.int_priority desc, j.ts_started, j.str_name
"""
LAYERS = """
    select l.str_name as name, l.pk_layer as id, l.str_range as range, l.int_cores_min / 100.0 as cores,
           round(l.int_mem_min / 1048576.0, 2) as mem_gib, l.str_tags as tags,
           s.int_waiting_count as waiting, s.int_running_count as running, s.int_succeeded_count as succeeded,
           s.int_depend_count as depend, s.int_dead_count as dead, s.int_eaten_count as eaten
      from layer l
      join layer_stat s on s.pk_layer = l.pk_layer
     where l.pk_job = %(job)s
     order by l.int_dispatch_order, l.str_name
"""
STATES = ["WAITING", "DEPEND", "RUNNING", "SUCCEEDED", "DEAD", "EATEN", "CHECKPOINT"]


def ask(ctx: click.Context, statement: str, values: Any = None) -> list[dict[str, Any]]:
    """Rows of one statement, decimals as floats. Raises MaestroError with the server's one-line message."""
    with connect(ctx.obj["dsn"], row_factory=dict_row) as connection:
        try:
            rows = connection.execute(statement, values).fetchall()
        except psycopg.Error as error:
            raise from_database(error) from error
    return [{name: float(v) if isinstance(v, Decimal) else v for name, v in row.items()} for row in rows]


def act(ctx: click.Context, function: str, *values: Any) -> Any:
    """Answer of one function of schema maestro."""
    marks = ", ".join(["%s"] * len(values))
    return ask(ctx, f"select maestro.{function}({marks}) as answer", list(values))[0]["answer"]


def table(rows: list[dict[str, Any]], hide: tuple[str, ...] = ("id",)) -> None:
    """Rows as a table on the terminal, columns as the query names them."""
    if not rows:
        click.echo("none")
        return
    drawn = Table(box=None, pad_edge=False)
    names = [name for name in rows[0] if name not in hide]
    for name in names:
        numeric = not isinstance(rows[0][name], (str, type(None)))
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*["" if row[name] is None else _shown(row[name]) for name in names])
    Console(width=None if Console().is_terminal else 200).print(drawn)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def say(as_json: bool, answer: dict[str, Any], line: str) -> None:
    """One JSON object as the last line, or one line for a person."""
    click.echo(json.dumps(answer) if as_json else line)


def numbers(text: str | None) -> list[int] | None:
    """Frame numbers of a list of numbers and ranges ("1-10,15"). Raises MaestroError for anything else."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise MaestroError(f"frames cannot be {text!r} (numbers and ranges, such as 1-10,15)")
        if dash and int(last) - int(first) > 1_000_000:
            raise MaestroError(f"frames cannot be {text!r} (at most 1,000,000 in a range)")
        found += range(int(first), int(last or first) + 1)
    return found


@click.group()
def job() -> None:
    """List, show and steer jobs. JOB is a job's name or id."""


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")


@job.command("list")
@click.option("--all", "finished", is_flag=True, help="Finished jobs too.")
@as_json_option
@click.pass_context
def list_jobs(ctx: click.Context, finished: bool, as_json: bool) -> None:
    """Jobs that are not finished."""
    rows = ask(ctx, LIST, {"job": None, "finished": finished})
    if as_json:
        say(True, {"jobs": rows}, "")
    else:
        table(rows)


@job.command()
@click.argument("name", metavar="JOB")
@as_json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """One job and its layers."""
    key = act(ctx, "find_job", name)
    found = ask(ctx, LIST, {"job": key, "finished": True})
    layers = ask(ctx, LAYERS, {"job": key})
    if as_json:
        say(True, {**found[0], "layers": layers}, "")
        return
    click.echo(f"{found[0]['name']}  {key}")
    table(found, hide=("id", "name"))
    click.echo()
    table(layers)


@job.command()
@click.argument("name", metavar="JOB")
@as_json_option
@click.pass_context
def pause(ctx: click.Context, name: str, as_json: bool) -> None:
    """Book nothing of the job; what runs goes on."""
    say(as_json, {"pk_job": act(ctx, "pause_job", name)}, f"paused {name}")


@job.command()
@click.argument("name", metavar="JOB")
@as_json_option
@click.pass_context
def resume(ctx: click.Context, name: str, as_json: bool) -> None:
    """Book the job again."""
    say(as_json, {"pk_job": act(ctx, "resume_job", name)}, f"resumed {name}")


@job.command()
@click.argument("name", metavar="JOB")
@click.option("--reason", default="killed by an operator", show_default=True, help="Kept with the kill orders.")
@as_json_option
@click.pass_context
def kill(ctx: click.Context, name: str, reason: str, as_json: bool) -> None:
    """End the job now and kill its running frames."""
    answer = act(ctx, "kill_job", name, reason)
    say(as_json, answer, f"finished {name}, {answer['killed']} running frames are being killed")


@job.command()
@click.argument("name", metavar="JOB")
@click.argument("value", metavar="PRIORITY", type=int)
@as_json_option
@click.pass_context
def priority(ctx: click.Context, name: str, value: int, as_json: bool) -> None:
    """Set the job's priority: its rate among jobs that wait for the same hosts."""
    say(as_json, {"pk_job": act(ctx, "set_job_priority", name, value), "priority": value}, f"priority {value}: {name}")


def frame_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """JOB and the options that choose frames of it."""
    for decorate in (
        click.pass_context,
        as_json_option,
        click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only frames in this state."),
        click.option("--frames", metavar="LIST", help="Only these frame numbers, such as 1-10,15."),
        click.option("--layer", help="Only this layer."),
        click.argument("name", metavar="JOB"),
    ):
        command = decorate(command)
    return command


@job.command()
@frame_options
def retry(
    ctx: click.Context, name: str, layer: str | None, frames: str | None, states: tuple[str, ...], as_json: bool
) -> None:
    """Run frames again: the dead ones, or those that the options name."""
    answer = act(ctx, "retry_frames", name, layer, numbers(frames), list(states) or None)
    say(as_json, answer, f"{answer['retried']} frames wait again, {answer['killed']} will once their runs are killed")


@job.command()
@frame_options
def eat(
    ctx: click.Context, name: str, layer: str | None, frames: str | None, states: tuple[str, ...], as_json: bool
) -> None:
    """Count frames as done that are not: the dead ones, or those that the options name."""
    answer = act(ctx, "eat_frames", name, layer, numbers(frames), list(states) or None)
    say(as_json, answer, f"{answer['eaten']} frames eaten, {answer['killed']} will be once their runs are killed")


@job.command()
@frame_options
def done(
    ctx: click.Context, name: str, layer: str | None, frames: str | None, states: tuple[str, ...], as_json: bool
) -> None:
    """Eat frames and release what waits for them."""
    answer = act(ctx, "mark_done", name, layer, numbers(frames), list(states) or None)
    say(as_json, answer, f"{answer['eaten']} frames eaten, {answer['depends']} depends satisfied")
