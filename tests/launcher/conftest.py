"""Fixture `farm`: an empty farm with a fake RQD that is not started yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest_asyncio

from tests.launcher.farm import Farm


@pytest_asyncio.fixture
async def farm(db: psycopg.Connection[Any], dsn: str, tmp_path: Path) -> AsyncIterator[Farm]:
    made = Farm(db, dsn, tmp_path / "spool")
    yield made
    await made.end()
