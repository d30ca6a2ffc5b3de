"""`maestro sim`: the simulated farm and its scenarios."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from db.errors import MaestroError
from db.schedule import parse_every
from sim import run as runner
from sim import scenarios
from sim.feed import Mix, Mode
from sim.lab import lab
from sim.verify import Result, Verdict, verify

STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "yellow"}


@click.group()
def sim() -> None:
    """Simulated hosts against the real scheduler: real ticks, real launcher, real reports."""
    # SIGINT too: a shell that starts it in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


_SHARE = click.FloatRange(0, 1)


@sim.command("run")
@click.option(
    "--feed", type=click.Choice([mode.value for mode in Mode]), default="sustained", show_default=True,
    help="Endless work, one fixed set of jobs, or endless trees of jobs that wait for one another.",
)
@click.option("--jobs", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Jobs of a fixed feed.")
@click.option(
    "--hosts", type=click.IntRange(1, 20_000), default=runner.Options.hosts, show_default=True,
    help="Hosts of the farm; the default is a real farm's.",
)  # fmt: skip
@click.option(
    "--tags", type=click.IntRange(0, 1000), default=0, metavar="N",
    help="N zones, as tags; half of the work is bound to one.",
)  # fmt: skip
@click.option(
    "--gpu", type=_SHARE, default=0.0, metavar="F",
    help="Share of layers that need a GPU; a tenth of the hosts have four.",
)  # fmt: skip
@click.option(
    "--mem-heavy", type=click.FloatRange(0, 1024), default=0.0, metavar="GB",
    help="Every frame is one core with GB of memory.",
)  # fmt: skip
@click.option(
    "--shows", type=click.IntRange(1, 50), default=1, show_default=True,
    help="Shows, with equal subscriptions.",
)  # fmt: skip
@click.option(
    "--licenses", type=click.IntRange(0, 1_000_000), default=0, metavar="N",
    help="A limit of N seats, which a fifth of the layers need.",
)  # fmt: skip
@click.option("--strand", is_flag=True, help="Wide frames among narrow ones.")
@click.option("--oom", type=_SHARE, default=0.0, metavar="F", help="Share of runs that end for lack of memory.")
@click.option("--fail", type=_SHARE, default=0.0, metavar="F", help="Share of runs that fail.")
@click.option(
    "--compress", type=click.FloatRange(0.1, 100_000), default=runner.Options.compress, show_default=True,
    help="How much quicker frames run than on a real farm.",
)  # fmt: skip
@click.option(
    "--duration", type=click.FloatRange(5, 86_400), default=60.0, show_default=True, metavar="SECONDS",
    help="How long.",
)  # fmt: skip
@click.option("--every", default="500ms", show_default=True, metavar="INTERVAL", help="Between two ticks.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same farm and jobs.")
@click.option("--picture", type=click.Path(dir_okay=False), help="Draw the farm's use over time into this SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, the last line.")
def run_command(
    feed: str, jobs: int, hosts: int, tags: int, gpu: float, mem_heavy: float, shows: int, licenses: int, strand: bool,
    oom: float, fail: float, compress: float, duration: float, every: str, seed: int, picture: str | None,
    as_json: bool,
) -> None:
    """Run a simulated farm, show it live, and leave a report with plots in var/sim/.

    The scheduler, the launcher and the database are the real ones, in a private cluster that is destroyed at the end;
    only the hosts are made up. Ctrl-C ends the run early, and the report is made all the same.
    """
    mix = Mix(Mode(feed), tags, gpu, mem_heavy, shows, licenses, strand)
    options = runner.Options(mix, hosts, jobs, compress, duration, parse_every(every), seed, oom, fail)
    options = replace(options, picture=Path(picture) if picture else None)
    console = Console(stderr=True)
    screen = _Screen(console)
    try:
        with screen.live, lab("sim", screen.say) as place:
            summary = runner.run(place, options, screen.say, screen.show)
    except KeyboardInterrupt:
        raise MaestroError("interrupted; everything the simulation started was stopped") from None
    if as_json:
        click.echo(json.dumps(summary))
    else:
        table = Table(show_header=False, show_edge=False)
        for name, value in summary.items():
            table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
        Console().print(table)
    if summary["accounting_faults"] or summary["double_launches"]:
        raise MaestroError("the run found faults: see accounting faults and double launches")


class _Screen:
    """The live view: a step, or the farm's figures with their recent course."""

    def __init__(self, console: Console) -> None:
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._plain = not console.is_terminal
        self._recent = {name: runner.Recent() for name in ("busy", "tick", "launched", "done")}

    def say(self, line: str) -> None:
        if not self._plain:
            self.live.update(line, refresh=True)

    def show(self, sample: runner.Sample, states: dict[str, int]) -> None:
        rows: list[tuple[str, str, str]] = [
            ("cores busy", f"{sample.busy:.1%}", self._recent["busy"].add(sample.busy)),
            ("cores booked", f"{sample.booked:.1%}", ""),
            ("tick", f"{sample.tick_ms:,.0f} ms", self._recent["tick"].add(sample.tick_ms)),
            ("launched", f"{sample.launches_per_s:,.0f} /s", self._recent["launched"].add(sample.launches_per_s)),
            ("done", f"{sample.done_per_s:,.0f} /s", self._recent["done"].add(sample.done_per_s)),
            ("queues", f"{sample.launch_queue:,} launches, {sample.completion_queue:,} completions", ""),
            ("frames", ", ".join(f"{name.lower()} {count:,}" for name, count in states.items() if count), ""),
            ("waiting", ", ".join(f"{name} {count:,}" for name, count in sample.waiting.items() if count), ""),
        ]
        table: Any = Table.grid(padding=(0, 2))
        for row in [("time", f"{sample.at:,.0f} s", ""), *rows]:
            table.add_row(*row)
        if not self._plain:
            self.live.update(table, refresh=True)


@sim.command("verify")
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), help="How long scenarios load the farm [default: 60; quick 6]."
)
@click.option("--quick", is_flag=True, help="Small farms and short runs; of the scenarios those that fit five minutes.")
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
    wanted = [name.upper() for name in names] or [
        name for name, scenario in scenarios.ALL.items() if scenario.quick or not quick
    ]
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
                    scenarios.ALL[name], place, seconds or (6.0 if quick else 60.0), quick,
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
