"""The benchmark as people call it: a small farm, and figures of the shape that the contract gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.cluster import ROOT

TIMEOUT_S = 240


@pytest.fixture
def var() -> Iterator[Path]:
    """An empty var directory that user postgres may enter; whatever a command leaves there is found."""
    with tempfile.TemporaryDirectory(prefix="maestro-bench-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def maestro(var: Path, *arguments: str) -> dict[str, Any]:
    """The last line that the command prints, read."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, "MAESTRO_VAR": str(var), "PYTHONPATH": f"{ROOT}:{ROOT / 'db/functions'}"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_cold_fill_fills_the_farm_and_leaves_nothing_behind(var: Path) -> None:
    figures = maestro(var, "bench", "cold-fill", "--scale", "0.01", "--runs", "2", "--json")
    assert {"scale", "runs", "phases_ms", "median_s", "min_s", "max_s", "bookings", "fill"} <= figures.keys()
    assert (figures["scale"], figures["runs"], figures["accounting_faults"]) == (0.01, 2, 0)
    assert figures["fill"] >= 0.99
    assert 0 < figures["min_s"] <= figures["median_s"] <= figures["max_s"]
    assert {"drain", "place", "commit", "total"} <= figures["phases_ms"].keys()
    assert list(var.iterdir()) == []


def test_steady_books_what_has_ended(var: Path) -> None:
    figures = maestro(var, "bench", "steady", "--scale", "0.01", "--runs", "3", "--ended", "20", "--json")
    assert figures["tags"] == 0
    assert (figures["drained"], figures["accounting_faults"]) == (20, 0)
    assert figures["booked"] > 0
    assert figures["median_ms"] > 0
    assert figures["phases_ms"]["drain"] < figures["with_drain_phases_ms"]["drain"]
    assert figures["waiting"] > 1000


def test_tags_shatter_the_farm(var: Path) -> None:
    figures = maestro(var, "bench", "cold-fill", "--scale", "0.02", "--tags", "5", "--runs", "1", "--json")
    assert (figures["tags"], figures["groups"], figures["accounting_faults"]) == (5, 5, 0)
    assert figures["fill"] >= 0.9


def test_lifecycle_passes_frames_over_grpc(var: Path) -> None:
    figures = maestro(
        var, "bench", "lifecycle", "--scale", "0.02", "--seconds", "6", "--warm-up", "4", "--compress", "400", "--json"
    )
    assert {"frames_per_second", "frames", "seconds", "phases_ms"} <= figures.keys()
    assert figures["frames"] > 0
    assert figures["frames_per_second"] == pytest.approx(figures["frames"] / figures["seconds"], rel=0.05)
    assert (figures["double_launches"], figures["overbooked_hosts"], figures["accounting_faults"]) == (0, 0, 0)
    assert list(var.iterdir()) == []


def test_sim_run_leaves_a_report(var: Path) -> None:
    summary = maestro(
        var, "sim", "run", "--hosts", "6", "--duration", "6", "--compress", "600", "--tags", "2", "--shows", "2",
        "--json",
    )
    report = Path(summary["report"])
    assert report.parent == var / "sim"
    assert report.read_text().count("<svg") >= 4
    assert (summary["accounting_faults"], summary["double_launches"]) == (0, 0)
    assert summary["frames_done"] > 0
