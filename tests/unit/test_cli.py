"""The command line: help, usage errors, and that no command costs a start of all the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main as table
from db.cluster import ROOT


def test_help_lists_every_command_of_the_table() -> None:
    result = CliRunner().invoke(table.cli, ["--help"])
    assert result.exit_code == 0
    for name, (_, _, line) in table.COMMANDS.items():
        assert name in result.output
        assert line.split()[0] in result.output


def test_an_unknown_command_is_bad_usage() -> None:
    assert CliRunner().invoke(table.cli, ["render-everything"]).exit_code == 2


@pytest.mark.parametrize("command", ["demo", "test", "schedule", "unschedule", "tick", "status"])
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(table.cli, [command, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_a_bad_interval_is_told_in_one_line_and_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "--dsn", "host=127.0.0.1 port=1", "tick", "--every", "yesterday"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "maestro: interval 'yesterday' is not between 50ms and 59s (write it like 500ms or 2s)"
    ]


def test_a_database_that_is_away_is_told_in_one_line_and_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "--dsn", "host=127.0.0.1 port=1 dbname=none", "status"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("maestro: cannot connect to the database: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_bootstrap_runs_from_any_directory(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__init__.py").write_text("raise SystemExit('the wrong cli')")
    done = subprocess.run(
        [str(ROOT / "maestro"), "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


def test_two_first_starts_at_once_install_once(tmp_path: Path) -> None:
    for name in ("maestro", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    # Stands in for Python: makes a .venv with itself in it, and writes down each pip; two at once would be seen.
    python.write_text(
        """#!/bin/sh
        case "$*" in
            "-m venv "*) mkdir -p .venv/bin && cp python .venv/bin/python ;;
            "-m pip install "*) mkdir busy || exit 9; sleep 0.2; rmdir busy; echo pip >>log ;;
            "-m pip --version") test -f log ;;
        esac
        """
    )
    python.chmod(0o755)
    starts = [
        subprocess.Popen(
            ["./maestro", "status"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHON": str(python)},
        )  # fmt: skip
        for _ in range(3)
    ]
    ends = [(start.communicate(timeout=60)[1], start.returncode) for start in starts]
    assert [code for _, code in ends] == [0, 0, 0], ends
    assert sorted(told for told, _ in ends) == ["", "", "maestro: preparing .venv (the first start takes a minute)\n"]
    assert (tmp_path / "log").read_text() == "pip\npip\n"
