"""Which packages are installed where: the choice of PostgreSQL's major version, and a refusal that says what to do."""

from __future__ import annotations

import pytest

from db import packages
from db.errors import MaestroError


def whole(major: int) -> set[str]:
    return {
        f"postgresql-{major}", f"postgresql-plpython3-{major}", f"postgresql-{major}-pgtap", f"postgresql-{major}-cron"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("available", "chosen"),
    [
        pytest.param(whole(15) | whole(17), 15, id="15 where there is one"),
        pytest.param(whole(16) | whole(17), 17, id="else the newest"),
        pytest.param(whole(16) | whole(17) - {"postgresql-17-cron"}, 16, id="only one that has every extension"),
        pytest.param(whole(13), None, id="none older than 14"),
        pytest.param(set(), None, id="none at all"),
    ],
)
def test_the_major_version_is(available: set[str], chosen: int | None) -> None:
    assert packages.best_major(available) == chosen


def test_what_cannot_be_installed_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", lambda programs=(): [packages.EXTENSIONS["pg_cron"]])
    monkeypatch.setattr(packages, "_administrator", lambda: None)
    monkeypatch.setattr(packages, "installed_major", lambda: 16)
    with pytest.raises(MaestroError, match="missing: pg_cron; install what your system calls postgresql-16-cron"):
        packages.ensure()


def test_nothing_is_asked_of_anybody_when_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", lambda programs=(): [])
    monkeypatch.setattr(packages, "_run", lambda *_: pytest.fail("a command was run"))
    packages.ensure(("time",))
