"""`maestro bench`: how fast the scheduler is on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from db.errors import MaestroError
from db.schedule import parse_every
from sim import bench as benchmark
from sim import lifecycle as life
from sim.lab import lab

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


_json = click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
_scale = click.option(
    "--scale", type=click.FloatRange(0.001, 100), default=1.0, show_default=True,
    help="Size of farm and workload; 1 is 1,553 hosts and 57,088 cores.",
)  # fmt: skip
_tags = click.option(
    "--tags", "zones", type=click.IntRange(0, 1000), default=0, metavar="N",
    help="Shatter the farm into N zones by tags; seven of ten layers are bound to one.",
)  # fmt: skip


def _runs(default: int, meaning: str) -> Decorator:
    return click.option("--runs", type=click.IntRange(1, 1000), default=default, show_default=True, help=meaning)


@click.group()
def bench() -> None:
    """Measure the scheduler's speed.

    Each runs on a private PostgreSQL cluster of its own, with fsync on, which is destroyed at the end.
    """
    # SIGINT too: a shell that starts it in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@bench.command("cold-fill")
@_scale
@_tags
@_runs(3, "Fills, each of a fresh database.")
@_json
def cold_fill(scale: float, zones: int, runs: int, as_json: bool) -> None:
    """How long one tick takes that fills an idle farm."""
    with _progress("cold-fill", runs) as (say, advance), lab("bench", say) as place:
        figures = benchmark.cold_fill(place, scale, zones, runs, say, advance)
    _tell(figures, as_json)


@bench.command()
@_scale
@_tags
@_runs(20, "Ticks of each kind, with a drain and without, that are timed.")
@_json
@click.option(
    "--ended", type=click.IntRange(1, 1_000_000), default=benchmark.ENDED_A_ROUND, show_default=True,
    help="Frames that end before each tick.",
)  # fmt: skip
def steady(scale: float, zones: int, runs: int, ended: int, as_json: bool) -> None:
    """How long a tick takes on a full farm in which some frames have ended.

    median, min, max and phases: the tick books what is free. with drain: it first files what has ended as well.
    """
    with _progress("steady", runs) as (say, advance), lab("bench", say) as place:
        figures = benchmark.steady(place, scale, zones, runs, ended, say, advance)
    _tell(figures, as_json)


@bench.command()
@_scale
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=60.0, show_default=True, help="How long to count.")
@click.option("--warm-up", type=click.FloatRange(0, 3600), default=15.0, show_default=True, help="Seconds before that.")
@click.option("--every", default="500ms", show_default=True, metavar="INTERVAL", help="Between two ticks.")
@click.option(
    "--compress", type=click.FloatRange(0.1, 100_000), default=life.COMPRESS, show_default=True,
    help="How much quicker frames run than on a real farm.",
)  # fmt: skip
@_json
def lifecycle(scale: float, seconds: float, warm_up: float, every: str, compress: float, as_json: bool) -> None:
    """How many frames a second go from WAITING to done, launcher and fake hosts included."""
    every_ms = parse_every(every)
    with _progress("lifecycle", None) as (say, _), lab("bench", say) as place:
        figures = life.lifecycle(place, scale, seconds, warm_up, every_ms, compress, say)
    _tell(figures, as_json)


@contextlib.contextmanager
def _progress(title: str, total: int | None) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A bar on stderr: a function that names the step, and one that advances by one."""
    columns = (BarColumn(), MofNCompleteColumn()) if total else ()
    bar = Progress(
        TextColumn("{task.description}"), *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    task = bar.add_task(title, total=total)
    try:
        with bar:
            yield (
                lambda line: bar.update(task, description=f"{title}: {line}"),
                lambda: bar.advance(task),
            )
    except KeyboardInterrupt:
        raise MaestroError("interrupted; everything the benchmark started was stopped") from None


def _tell(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(figures))
    else:
        Console().print(_table(figures))
    if figures["accounting_faults"]:
        raise MaestroError(f"{figures['accounting_faults']} accounting faults: the figures are worth nothing")


def _table(figures: dict[str, Any]) -> Table:
    """Two columns: what, and how much; the phases one by one at the end."""
    table = Table(title=f"bench {figures['bench']}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    groups = {name: value for name, value in figures.items() if isinstance(value, dict)}
    for name, value in figures.items():
        if name not in groups and name != "bench" and value is not None:
            table.add_row(name.replace("_", " "), f"{value:.2%}" if name == "fill" else f"{value:,}")
    for group, values in groups.items():
        table.add_section()
        for name, value in values.items():
            table.add_row(f"{group.replace('_', ' ')}: {name}", f"{value:,}")
    return table
