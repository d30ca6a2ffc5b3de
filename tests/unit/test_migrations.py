"""Upgrades beside a Cuebot: the planner's own migrations leave OpenCue's tables, and whoever writes them, alone."""

from __future__ import annotations

import re

import pytest

from db.install import FUNCTIONS, MIGRATIONS

OWN = sorted(path for path in (MIGRATIONS / "maestro").glob("*.sql"))
REPLAYED = sorted(FUNCTIONS.glob("*.sql"))
# What takes a lock on a table that writers of it would have to wait for.
CHANGES = re.compile(
    r"^\s*(?:create (?:unique )?index(?: concurrently)?(?: if not exists)? \S+ on|alter table(?: if exists)?(?: only)?|"
    r"create (?:or replace )?(?:constraint )?trigger .*? on|drop trigger(?: if exists)? \S+ on|truncate(?: table)?|"
    r"lock(?: table)?|drop table(?: if exists)?)\s+(?P<table>[\w.]+)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("path", OWN + REPLAYED, ids=lambda path: path.stem)
def test_an_installation_changes_no_table_but_maestros(path: object) -> None:
    """P68: however many rows `frame` has, an installation or upgrade blocks no update of it."""
    changed = [found["table"] for found in CHANGES.finditer(path.read_text())]  # type: ignore[attr-defined]
    assert [table for table in changed if not table.startswith("maestro.")] == []


def test_such_a_change_would_be_found() -> None:
    for text in ("create index f on frame (x)", "alter table public.frame add x int", "drop trigger t on frame",
                 "create trigger t before update\n on frame"):  # fmt: skip
        assert CHANGES.search(text)
