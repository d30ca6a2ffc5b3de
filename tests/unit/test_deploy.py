"""The units in deploy/ start a drained launcher again, although it ended with success, and give a drain its time."""

from __future__ import annotations

import configparser

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
