"""The launcher's configuration: one frozen dataclass. --help and docs/launcher.md are made from it.

Order of precedence: an option on the command line, the environment (MAESTRO_…), the file (--config, TOML, one key a
field), the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from db.errors import MaestroError

LEVELS = ("debug", "info", "warning", "error")


def _knob(default: Any, unit: str, help: str) -> Any:
    return field(default=default, metadata={"unit": unit, "help": help})


@dataclass(frozen=True)
class Config:
    """Every knob of a launcher process; field `x_y` is set by key `x_y`, option `--x-y` and MAESTRO_X_Y."""

    intake: str = _knob(
        "0.0.0.0:8443", "host:port",
        "Where RQDs send their reports; empty serves none (beside a Cuebot, which takes them itself).",
    )  # fmt: skip
    rqd_port: int = _knob(8444, "port", "Port on which RQD listens, at the host's own name.")
    dials: str = _knob(
        "", "path", "TOML file of host name = \"host:port\" for RQDs elsewhere; goes before table maestro.host_dial."
    )  # fmt: skip
    claim_batch: int = _knob(500, "launches", "Bookings taken from the database at once.")
    claimed_max: int = _knob(
        5000, "launches", "Bookings held at once, waiting or in flight; a dead host's wait here and hold up nobody."
    )
    launch_concurrency: int = _knob(64, "calls", "Calls to RQDs at once; one a host.")
    launch_deadline_s: float = _knob(10.0, "s", "How long RQD has to answer a call, connecting included.")
    confirm_gap_s: float = _knob(
        3.0, "s", "Between the two answers that a host must give before a frame counts as not running there."
    )
    retry_first_s: float = _knob(0.5, "s", "First pause before a host that cannot be reached is tried again.")
    poll_s: float = _knob(1.0, "s", "How often work is looked for when no notification comes.")
    verify_s: float = _knob(
        5.0, "s", "How often hosts are asked about bookings that no report confirms; 0 never. Only where intake serves."
    )
    heartbeat_s: float = _knob(3.0, "s", "How often the database is told that this launcher lives.")
    channels_max: int = _knob(2000, "channels", "Connections to RQDs that are kept.")
    channel_idle_s: float = _knob(300.0, "s", "A connection unused for this long is closed.")
    message_max_bytes: int = _knob(16 * 1024 * 1024, "bytes", "Largest report accepted.")
    reports_max: int = _knob(50_000, "reports", "Reports waiting for the database; more are put off (UNAVAILABLE).")
    spool: str = _knob(
        "var/launcher", "path", "Directory for completions that arrive while the database is away; survives restarts."
    )
    metrics: str = _knob("", "host:port", "Where /metrics and /healthz are served; empty or 0 serves none.")
    drain_grace_s: float = _knob(30.0, "s", "How long a drain waits for calls in flight before it hands them back.")
    recycle_max_launches: int = _knob(0, "launches", "Drain after this many launches; 0 never.")
    recycle_max_rss_mb: int = _knob(
        0, "MiB", "Drain once the resident size, sampled while idle, reaches this (inclusive); 0 never."
    )
    recycle_min_uptime_s: float = _knob(
        600.0, "s", "A size cap at or below the size at start acts no earlier than this, and is complained about."
    )
    watchdog_s: float = _knob(20.0, "s", "The process ends itself when a duty makes no progress this long; 0 never.")
    log_level: str = _knob("info", "level", f"One of {', '.join(LEVELS)}.")

    def validate(self) -> Config:
        """Refuse what cannot be meant; raises MaestroError naming the field, the value and what would be right."""
        at_least_one = ("claim_batch", "claimed_max", "launch_concurrency", "channels_max", "reports_max", "rqd_port")
        for name in at_least_one:
            self._require(getattr(self, name) >= 1, name, "at least 1")
        for name in ("launch_deadline_s", "confirm_gap_s", "retry_first_s", "poll_s", "heartbeat_s", "channel_idle_s"):
            self._require(getattr(self, name) > 0, name, "more than 0")
        for name in ("verify_s", "drain_grace_s", "recycle_max_launches", "recycle_max_rss_mb", "recycle_min_uptime_s"):
            self._require(getattr(self, name) >= 0, name, "0 or more (0 switches it off)")
        self._require(self.message_max_bytes >= 65_536, "message_max_bytes", "at least 65536")
        self._require(self.log_level in LEVELS, "log_level", f"one of {', '.join(LEVELS)}")
        self._require(self.rqd_port <= 65_535, "rqd_port", "at most 65535")
        for name in ("intake", "metrics"):
            self._require(_is_address(getattr(self, name)), name, "host:port, or empty")
        self._require(self.claimed_max >= self.claim_batch, "claimed_max", f"at least claim_batch ({self.claim_batch})")
        longest = max(self.heartbeat_s, self.poll_s, self.verify_s)
        self._require(
            self.watchdog_s == 0 or self.watchdog_s >= 2 * longest,
            "watchdog_s", f"0, or at least twice the longest of heartbeat_s, poll_s and verify_s ({2 * longest:g})",
        )  # fmt: skip
        return self

    def _require(self, good: bool, name: str, right: str) -> None:
        if not good:
            raise MaestroError(f"launcher setting {name} cannot be {getattr(self, name)!r}: it must be {right}")

    @classmethod
    def table(cls) -> str:
        """Every knob as a Markdown table, for docs/launcher.md."""
        lines = ["| key | unit | default | meaning |", "| --- | --- | --- | --- |"]
        for knob in fields(cls):
            default = f"`{knob.default}`" if knob.default != "" else "empty"
            lines.append(f"| `{knob.name}` | {knob.metadata['unit']} | {default} | {knob.metadata['help']} |")
        return "\n".join(lines) + "\n"

    @property
    def serves_metrics(self) -> bool:
        return self.metrics not in ("", "0")


def _is_address(text: str) -> bool:
    if text in ("", "0"):
        return True
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and int(port) <= 65_535


def load(
    options: Mapping[str, Any] | None = None, path: str | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration from options (None is not given), environment, file and defaults, validated."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = _from_file(path) if path else {}
    for knob in fields(Config):
        name = f"MAESTRO_{knob.name.upper()}"
        if name in environment:
            values[knob.name] = _cast(knob.name, environment[name], name)
        if options and options.get(knob.name) is not None:
            values[knob.name] = _cast(knob.name, options[knob.name], f"--{knob.name.replace('_', '-')}")
    return Config(**values).validate()


def _from_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise MaestroError(f"cannot read the configuration {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise MaestroError(f"{path} is not TOML: {error}") from None
    known = {knob.name for knob in fields(Config)}
    for name in found:
        if name not in known:
            raise MaestroError(f"{path}: unknown key {name}; known are {', '.join(sorted(known))}")
    return {name: _cast(name, value, f"{path}: {name}") for name, value in found.items()}


def _cast(name: str, value: Any, where: str) -> Any:
    kind = type(getattr(Config, name))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MaestroError(f"{where} cannot be {value!r}: it must be {kind.__name__}")
    try:
        return kind(value)
    except ValueError:
        raise MaestroError(f"{where} cannot be {value!r}: it must be {kind.__name__}") from None


def load_dials(path: str) -> dict[str, str]:
    """Host name -> target ("host:port") from the file of field `dials`."""
    if not path:
        return {}
    try:
        found = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MaestroError(f"cannot read the dials {path}: {error}") from None
    for name, target in found.items():
        if not isinstance(target, str) or not target or not _is_address(target):
            raise MaestroError(f"{path}: {name} cannot be {target!r}: it must be \"host:port\"")
    return dict(found)
