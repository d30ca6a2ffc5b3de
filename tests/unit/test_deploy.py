"""The units in deploy/ start a drained launcher again, although it ended with success, and give a drain its time."""

from __future__ import annotations

import configparser
import re
from dataclasses import fields

from db.cluster import ROOT
from launcher.config import Config

DEPLOY = ROOT / "deploy"


def section(name: str, title: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read(DEPLOY / name)
    return parser[title]


def test_systemd_restarts_on_success_and_waits_for_a_drain() -> None:
    unit = section("maestro-launcher.service", "Service")
    assert unit["Restart"] == "always"
    assert unit["Type"] == "notify"
    assert "-USR1" in unit["ExecReload"]
    assert int(unit["TimeoutStopSec"]) > Config().drain_grace_s
    assert int(unit["WatchdogSec"]) > Config().watchdog_s


def test_supervisord_restarts_on_success_and_waits_for_a_drain() -> None:
    program = section("supervisord.conf", "program:maestro-launcher")
    assert program["autorestart"] == "true"
    assert program["startsecs"] == "0"
    assert int(program["stopwaitsecs"]) > Config().drain_grace_s


def test_the_container_hands_signals_to_the_launcher_itself() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["python", "-m", "launcher"]' in lines
    assert "STOPSIGNAL SIGTERM" in lines
    assert any("--restart unless-stopped" in line for line in lines)


def test_the_container_is_told_of_settings_that_there_are_and_of_the_port_served() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    known = {f"MAESTRO_{field.name.upper()}" for field in fields(Config)}
    assert set(re.findall(r"\bMAESTRO_[A-Z_]+", text)) <= known
    port = Config().intake.rpartition(":")[2]
    assert f"EXPOSE {port}" in text.splitlines()
    assert f"-p {port}:{port}" in text
    [stop] = re.findall(r"--stop-timeout (\d+)", text)
    assert int(stop) > Config().drain_grace_s


def test_the_container_takes_nothing_that_a_used_checkout_holds_besides() -> None:
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    left_out = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert ignored | {".git"} <= left_out
