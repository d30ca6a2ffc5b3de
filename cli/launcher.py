"""`maestro launcher`: the daemon, in the foreground."""

from __future__ import annotations

from launcher import early

early.install()

import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import fields  # noqa: E402
from typing import Any  # noqa: E402

import click  # noqa: E402

from launcher.config import Config, load  # noqa: E402


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each field of the configuration, with its unit, meaning, default and environment variable."""
    for knob in reversed(fields(Config)):
        default = "empty" if knob.default == "" else knob.default
        command = click.option(
            f"--{knob.name.replace('_', '-')}",
            knob.name,
            type=type(knob.default),
            metavar=knob.metadata["unit"],
            help=f"{knob.metadata['help']} [default: {default}; env MAESTRO_{knob.name.upper()}]",
        )(command)
    return command


@click.command()
@click.option("--config", "path", metavar="FILE", type=click.Path(dir_okay=False), help="TOML: an option below a key.")
@_options
@click.pass_context
def launcher(ctx: click.Context, /, path: str | None, **options: Any) -> None:
    """Run the launcher daemon in the foreground.

    It sends the bookings of the ticks to the hosts' RQDs, and takes RQDs' reports. SIGUSR1, SIGTERM and SIGINT drain
    it: it claims nothing more, finishes what is in flight, stores the results and exits with status 0.
    """
    config = load(options, path)
    if early.drain.requested:
        sys.exit(0)
    from db.connection import resolve
    from launcher import daemon

    daemon.main(config, resolve(ctx.obj["dsn"]))
