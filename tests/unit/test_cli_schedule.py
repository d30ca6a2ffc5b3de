"""How pg_cron is told to tick, for its versions and all intervals."""

from __future__ import annotations

import pytest

from db.errors import MaestroError
from db.schedule import choose, parse_every


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("500ms", 500), ("2s", 2000), ("1 second", 1000), ("0.5s", 500), (" 50 ms ", 50)]
)
def test_an_interval_is_read(text: str, milliseconds: int) -> None:
    assert parse_every(text) == milliseconds


@pytest.mark.parametrize("text", ["", "500", "fast", "-1s", "1ms", "0s", "60s", "1m", "1e3ms", "NaNs"])
def test_an_interval_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(MaestroError, match="is not between 50ms and 59s"):
        parse_every(text)


@pytest.mark.parametrize(
    ("every_ms", "version", "schedule"),
    [
        pytest.param(500, "1.4-1", "* * * * *", id="minutes only"),
        pytest.param(1000, "1.4", "* * * * *", id="minutes only, whole seconds asked"),
        pytest.param(1000, "1.5", "1 second", id="pg_cron ticks itself"),
        pytest.param(5000, "1.6", "5 seconds", id="pg_cron ticks itself, more than one second"),
        pytest.param(500, "1.6", "* * * * *", id="shorter than pg_cron knows"),
        pytest.param(1500, "1.10", "* * * * *", id="not whole seconds"),
        pytest.param(2000, "2.0", "2 seconds", id="a later major"),
    ],
)
def test_pg_cron_is_used_as_its_version_allows(every_ms: int, version: str, schedule: str) -> None:
    chosen = choose(every_ms, version)
    assert chosen.schedule == schedule
    if schedule == "* * * * *":
        assert chosen.command == f"call maestro.run(every => interval '{every_ms} ms', for_ => interval '59 s')"
    else:
        assert chosen.command == "select public.maestro_tick()"
