"""When a launcher recycles itself, and what its configuration refuses."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from db.cluster import ROOT
from db.errors import MaestroError
from launcher import early
from launcher.config import Config, load, load_dials
from launcher.recycle import due


def _due(config: Config, **values: Any) -> str | None:
    return due(config, **{"launched": 0, "rss": 50, "rss_at_start": 40, "uptime_s": 0.0, **values})


@pytest.mark.parametrize(("launched", "fires"), [(9, False), (10, True), (11, True)])
def test_the_launch_cap_fires_at_its_value_and_beyond(launched: int, fires: bool) -> None:
    assert bool(_due(Config(recycle_max_launches=10), launched=launched)) is fires


@pytest.mark.parametrize(("rss", "fires"), [(99, False), (100, True), (101, True)])
def test_the_size_cap_fires_at_its_value_and_beyond(rss: int, fires: bool) -> None:
    assert bool(_due(Config(recycle_max_rss_mb=100), rss=rss)) is fires


def test_caps_of_0_never_fire() -> None:
    assert _due(Config(), launched=10**9, rss=10**6) is None


def test_a_size_cap_below_the_size_at_start_acts_once_in_its_time() -> None:
    config = Config(recycle_max_rss_mb=30, recycle_min_uptime_s=600)
    assert _due(config, rss=50, rss_at_start=40, uptime_s=599) is None
    assert _due(config, rss=50, rss_at_start=40, uptime_s=600)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("recycle_max_launches", -1), ("recycle_max_rss_mb", -1), ("drain_grace_s", -0.1), ("claim_batch", 0),
        ("poll_s", 0.0), ("log_level", "loud"), ("intake", "8443"), ("metrics", "localhost:metrics"),
        ("rqd_port", 70000), ("claimed_max", 10), ("watchdog_s", 1.0),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_meant_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(MaestroError, match=f"{field} cannot be {value!r}"):
        replace(Config(), **{field: value}).validate()


def test_every_field_says_its_unit_and_meaning() -> None:
    for knob in fields(Config):
        assert knob.metadata["unit"], knob.name
        assert knob.metadata["help"].endswith("."), knob.name


def test_an_option_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "launcher.toml"
    path.write_text("claim_batch = 1\nrqd_port = 2\npoll_s = 3\n")
    environment = {"MAESTRO_CLAIM_BATCH": "4", "MAESTRO_RQD_PORT": "5"}
    config = load({"rqd_port": 6, "poll_s": None}, str(path), environment)
    assert (config.claim_batch, config.rqd_port, config.poll_s) == (4, 6, 3.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("claim_bach = 1", "claim_bach"), ("claim_batch = true", "claim_batch"), ('poll_s = "soon"', "poll_s"),
        ("=", "TOML"),
    ],
)
def test_a_file_that_is_wrong_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "launcher.toml"
    path.write_text(text)
    with pytest.raises(MaestroError, match=said):
        load({}, str(path), {})


def test_dials_are_read_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dials.toml"
    path.write_text('h0 = "tunnel:8450"\n')
    assert load_dials(str(path)) == {"h0": "tunnel:8450"}
    path.write_text('h0 = "tunnel"\n')
    with pytest.raises(MaestroError, match="h0"):
        load_dials(str(path))


def test_the_guide_lists_every_knob_as_it_is() -> None:
    assert Config.table() in (ROOT / "docs/launcher.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["launcher"], True), (["--dsn", "x", "launcher", "--poll-s", "1"], True), (["--dsn=x", "launcher"], True),
        (["job", "show", "launcher"], False), (["--dsn", "launcher", "status"], False), ([], False),
    ],
)  # fmt: skip
def test_only_the_launcher_takes_signals_over(arguments: list[str], starts: bool) -> None:
    assert early.is_launcher(arguments) is starts
