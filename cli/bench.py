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
from sim import bench as benchmark
from sim.lab import lab

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _common(runs: int, runs_help: str) -> Decorator:
    """Options that the benchmarks share."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object."),
            click.option("--runs", type=click.IntRange(1, 1000), default=runs, show_default=True, help=runs_help),
            click.option(
                "--scale", type=click.FloatRange(0.001, 100), default=1.0, show_default=True,
                help="Size of farm and workload; 1 is 1,553 hosts, 57,088 cores and 200,000 waiting frames.",
            ),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


@click.group()
def bench() -> None:
    """Measure the scheduler's speed.

    Each runs on a private PostgreSQL cluster of its own, with fsync on, which is destroyed at the end.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@bench.command("cold-fill")
@_common(3, "Fills, each of a fresh database.")
def cold_fill(scale: float, runs: int, as_json: bool) -> None:
    """How long one tick takes that fills an idle farm."""
    with _progress("cold-fill", runs) as (say, advance), lab("bench", say) as place:
        figures = benchmark.cold_fill(place, scale, runs, say, advance)
    _tell(figures, as_json)


@bench.command()
@_common(20, "Ticks that are timed.")
@click.option(
    "--ended", type=click.IntRange(1, 1_000_000), default=benchmark.ENDED_A_ROUND, show_default=True,
    help="Frames that end before each tick.",
)  # fmt: skip
def steady(scale: float, runs: int, ended: int, as_json: bool) -> None:
    """How long a tick takes on a full farm in which some frames have ended."""
    with _progress("steady", runs) as (say, advance), lab("bench", say) as place:
        figures = benchmark.steady(place, scale, runs, ended, say, advance)
    _tell(figures, as_json)


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A bar on stderr: a function that names the step, and one that advances by one."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
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
    for name, value in figures.items():
        if name in ("bench", "phases_ms") or value is None:
            continue
        table.add_row(name.replace("_", " "), f"{value:.2%}" if name == "fill" else f"{value:,}")
    table.add_section()
    for name, value in figures.get("phases_ms", {}).items():
        table.add_row(f"{name}, ms", f"{value:,}")
    return table
