"""Errors that a user can mend, told in one line, and their translation from the driver's."""

from __future__ import annotations

import psycopg


class MaestroError(Exception):
    """Something a user can mend; its text names what is wrong, where, and what would be right."""


def from_database(error: psycopg.Error) -> MaestroError:
    """One line from a server error: message, then hint if there is one. QM… codes are ours (docs/errors.md)."""
    diag = error.diag
    message = (diag.message_primary or str(error)).strip().splitlines()[0]
    if diag.message_hint:
        message = f"{message} ({diag.message_hint})"
    return MaestroError(message)
