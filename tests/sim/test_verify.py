"""Verdicts: what passes has been measured, keeps to its bars, and would not without what it tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from cli import sim as command
from cli.main import cli
from db.errors import MaestroError
from sim import scenarios, verify
from sim.verify import Bar, Numbers, Scenario, Verdict, World

GOOD: Numbers = {"share": 0.9, "events": 12, "accounting_faults": 0}


def _scenario(breaks: tuple[str, ...] = (), run: Any = lambda world: dict(GOOD)) -> Scenario:
    return Scenario("TRIAL", "for tests", run, (Bar("share", at_least=0.5),), ("events",), breaks)


@pytest.mark.parametrize(
    ("numbers", "control", "verdict"),
    [
        pytest.param(GOOD, None, Verdict.PASS, id="every bar holds"),
        pytest.param({**GOOD, "share": 0.4}, None, Verdict.FAIL, id="a bar is broken"),
        pytest.param({**GOOD, "accounting_faults": 1}, None, Verdict.FAIL, id="the books do not balance"),
        pytest.param({**GOOD, "events": 0}, None, Verdict.INCONCLUSIVE, id="nothing happened"),
        pytest.param({}, None, Verdict.INCONCLUSIVE, id="nothing was measured"),
        pytest.param({"events": 1, "accounting_faults": 0}, None, Verdict.INCONCLUSIVE, id="a bar's number is missing"),
        pytest.param({"events": 1, "share": 1.0}, None, Verdict.INCONCLUSIVE, id="the books were not checked"),
        pytest.param(GOOD, {"share": 0.1}, Verdict.PASS, id="the control breaks the bar"),
        pytest.param(GOOD, GOOD, Verdict.INCONCLUSIVE, id="the control keeps to the bar as well"),
    ],
)
def test_verdict_follows_from_the_numbers(numbers: Numbers, control: Numbers | None, verdict: Verdict) -> None:
    assert verify.judge(_scenario(("share",)), numbers, control).verdict is verdict


def test_a_scenario_that_breaks_down_fails_with_its_reason() -> None:
    def run(world: World) -> Numbers:
        raise MaestroError("not within 60 s: frames end")

    result = verify.verify(_scenario(run=run), None, 1, True, lambda line: None)  # type: ignore[arg-type]
    assert (result.verdict, result.note) == (Verdict.FAIL, "not within 60 s: frames end")


def test_every_scenario_demands_evidence_and_its_control_breaks_a_bar_that_exists() -> None:
    for scenario in scenarios.ALL.values():
        assert scenario.evidence, scenario.name
        assert scenario.breaks, scenario.name
        assert set(scenario.breaks) <= {bar.number for bar in scenario.bars}, scenario.name


@pytest.fixture
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def nothing(name: str, say: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(command, "lab", nothing)


@pytest.mark.usefixtures("no_lab")
def test_a_check_that_measured_nothing_is_inconclusive_and_the_command_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "ALL", {"TRIAL": _scenario(run=lambda world: {})})
    done = CliRunner().invoke(cli, ["sim", "verify", "--json"])
    assert isinstance(done.exception, MaestroError)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["scenarios"]["TRIAL"]["verdict"] == "INCONCLUSIVE"
    assert (summary["passed"], summary["failed"], summary["inconclusive"]) == (0, 0, 1)


@pytest.mark.usefixtures("no_lab")
def test_a_quick_run_is_of_the_quick_scenarios_and_a_named_one_of_those_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = _scenario(), replace(_scenario(), name="FAST", quick=True)
    monkeypatch.setattr(scenarios, "ALL", {"TRIAL": slow, "FAST": fast})
    for arguments, names in ((["--quick"], {"FAST"}), (["--quick", "trial"], {"TRIAL"}), ([], {"TRIAL", "FAST"})):
        done = CliRunner().invoke(cli, ["sim", "verify", "--json", *arguments])
        assert set(json.loads(done.stdout.splitlines()[-1])["scenarios"]) == names


@pytest.mark.usefixtures("no_lab")
def test_all_passed_is_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "ALL", {"TRIAL": _scenario()})
    done = CliRunner().invoke(cli, ["sim", "verify", "trial", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["passed"] == 1


def test_an_unknown_scenario_is_bad_usage() -> None:
    done = CliRunner().invoke(cli, ["sim", "verify", "NO_SUCH"])
    assert done.exit_code == 2
    assert "no scenario NO_SUCH" in done.output
