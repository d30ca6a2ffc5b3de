"""Fixture `farm`: an empty farm in a fresh database, as the launcher's tests have it."""

from __future__ import annotations

from tests.launcher.conftest import farm

__all__ = ["farm"]
