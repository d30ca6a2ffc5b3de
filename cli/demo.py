"""`maestro demo`: a whole farm on this machine."""

from __future__ import annotations

import json
import signal
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from db.errors import MaestroError
from demo import run as runner


@click.command()
@click.option("--frames", type=click.IntRange(1, 1000), default=24, show_default=True, help="Pictures to render.")
@click.option("--keep", is_flag=True, help="Leave the farm running; --stop ends it.")
@click.option("--stop", is_flag=True, help="End what an earlier demo left running, and do nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, the last line.")
def demo(frames: int, keep: bool, stop: bool, as_json: bool) -> None:
    """Render a small film on three stock RQDs on this machine.

    Starts the private PostgreSQL cluster, installs Maestro, has pg_cron tick, starts a launcher and three RQDs, and
    submits a film of N frames and a contact sheet that depends on them. The pictures stay in var/demo/pictures.
    """
    # SIGINT too: a shell that starts it in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    console = Console(stderr=True)
    if stop:
        console.print("stopped" if runner.stop() else "nothing was running")
        return
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, auto_refresh=False, transient=True,
    )  # fmt: skip
    task = bar.add_task("rendering", total=frames + 1, visible=False)

    def show(progress: runner.Progress) -> None:
        words = f"rendering, {progress.running} running" + (f", {progress.dead} dead" if progress.dead else "")
        bar.update(task, completed=progress.succeeded, total=progress.total, visible=True, description=words)
        bar.refresh()

    def say(line: str) -> None:
        bar.update(task, visible=False)
        bar.refresh()
        console.print(f"  {line}", style="dim", highlight=False)

    try:
        with bar:
            summary = runner.run(frames, keep, say, show)
    except KeyboardInterrupt:
        raise MaestroError("interrupted; everything the demo started was stopped") from None
    _tell(Console(stderr=as_json), summary, keep)
    if as_json:
        click.echo(json.dumps(summary))
    if not _good(summary):
        raise MaestroError(f"the demo failed; the logs are in {runner.directory()}")


def _good(summary: dict[str, Any]) -> bool:
    return bool(
        summary["frames_succeeded"] == summary["frames_total"]
        and summary["contact_sheet"]
        and summary["accounting_faults"] == 0
        and summary["hosts_whole"]
    )


def _tell(console: Console, summary: dict[str, Any], keep: bool) -> None:
    hosts = ", ".join(f"{name} {count}" for name, count in summary["frames_by_host"].items())
    sheet = "and the contact sheet succeeded" if summary["contact_sheet"] else "succeeded; the contact sheet is missing"
    whole = "every host has all of its memory back" if summary["hosts_whole"] else "a host lacks memory or cores"
    lines = [
        f"{summary['frames_succeeded']} of {summary['frames_total']} frames {sheet}, in {summary['seconds']:.0f} s",
        f"frames by host: {hosts}",
        f"{summary['ticks']} ticks, {summary['mean_tick_ms']:g} ms on average; {summary['ticks_by_pg_cron']} of them by"
        " pg_cron, those before its first full minute called by the demo",
        f"{summary['accounting_faults']} accounting faults; {whole}",
        f"pictures: {runner.pictures()}",
    ]
    if keep:
        lines.append("cluster, launcher and RQDs go on: see `maestro status`; `maestro demo --stop` ends them")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
