"""`maestro sim`: the simulated farm and its scenarios."""

from __future__ import annotations

import json
import signal

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from db.errors import MaestroError
from sim import scenarios
from sim.lab import lab
from sim.verify import Result, Verdict, verify

STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "yellow"}


@click.group()
def sim() -> None:
    """Simulated hosts against the real scheduler: real ticks, real launcher, real reports."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@sim.command("verify")
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), help="How long scenarios load the farm [default: 20; quick 6]."
)
@click.option("--quick", is_flag=True, help="Small farms and short runs.")
@click.option("--list", "as_list", is_flag=True, help="Name the scenarios, and do nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print verdicts and numbers as one JSON object, the last line.")
def verify_command(
    names: tuple[str, ...], seconds: float | None, quick: bool, as_list: bool, as_json: bool
) -> None:
    """Run scenarios, all or those named, and judge each: PASS, FAIL, or INCONCLUSIVE.

    A scenario that measured nothing, or whose bars hold without what it tests too, is INCONCLUSIVE. Exit status 0
    means that all of them passed.
    """
    if as_list:
        for scenario in scenarios.ALL.values():
            click.echo(f"{scenario.name:<20} {scenario.about}")
        return
    wanted = [name.upper() for name in names] or list(scenarios.ALL)
    if unknown := [name for name in wanted if name not in scenarios.ALL]:
        raise click.UsageError(f"no scenario {unknown[0]}; there are {', '.join(scenarios.ALL)}")
    console = Console(stderr=True)
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    )
    task = bar.add_task("starting")
    results: dict[str, Result] = {}
    try:
        with bar, lab("verify", lambda line: bar.update(task, description=line)) as place:
            for name in wanted:
                results[name] = verify(
                    scenarios.ALL[name], place, seconds or (6.0 if quick else 20.0), quick,
                    lambda line, name=name: bar.update(task, description=f"{name}: {line}"),  # type: ignore[misc]
                )  # fmt: skip
                result = results[name]
                style = STYLES[result.verdict]
                console.print(
                    f"[{style}]{result.verdict.value:<12}[/] {name:<18} {result.seconds:6.1f} s  {result.note}",
                    highlight=False, soft_wrap=True,
                )  # fmt: skip
    except KeyboardInterrupt:
        raise MaestroError("interrupted; everything the simulation started was stopped") from None
    _tell(results, as_json)
    if failed := [name for name, result in results.items() if result.verdict is not Verdict.PASS]:
        raise MaestroError(f"not passed: {', '.join(failed)}")


def _tell(results: dict[str, Result], as_json: bool) -> None:
    counts = {verdict: sum(result.verdict is verdict for result in results.values()) for verdict in Verdict}
    if as_json:
        summary = {
            "scenarios": {name: result.as_json() for name, result in results.items()},
            "passed": counts[Verdict.PASS], "failed": counts[Verdict.FAIL],
            "inconclusive": counts[Verdict.INCONCLUSIVE],
        }  # fmt: skip
        click.echo(json.dumps(summary))
        return
    table = Table(show_edge=False)
    for column in ("scenario", "verdict", "numbers"):
        table.add_column(column)
    for name, result in results.items():
        numbers = ", ".join(f"{key} {value:g}" for key, value in result.numbers.items())
        table.add_row(name, f"[{STYLES[result.verdict]}]{result.verdict.value}[/]", numbers)
    Console().print(table)
