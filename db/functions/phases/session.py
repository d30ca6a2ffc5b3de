"""The database as the phases see it: statements in, rows out."""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence

Row = Mapping[str, Any]


def numbers(values: Iterable[float], write: Callable[[Any], str] = repr) -> str:
    """An array as PostgreSQL writes it, for a parameter of type text that the statement casts.

    PL/Python hands a list over element by element, at several times the cost.
    """
    return "{%s}" % ",".join(map(write, values))


class Session:
    """One tick's way to the database, and its stopwatch. `plpy` is PL/Python's own module, or what stands in for it."""

    def __init__(self, plpy: Any) -> None:
        self.plpy = plpy
        self.started = time.monotonic()
        self._since = self.started
        self.ms: Dict[str, float] = {}  # phase -> how long it took
        self.errors: List[Dict[str, str]] = []
        self.warnings: List[Dict[str, str]] = []

    def rows(self, statement: str, types: Sequence[str] = (), values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement answers with."""
        found: Sequence[Row] = self.plpy.execute(self.plpy.prepare(statement, list(types)), list(values))
        return found

    def value(self, statement: str, types: Sequence[str] = (), values: Sequence[Any] = ()) -> Any:
        """The column `answer` of the only row."""
        return self.rows(statement, types, values)[0]["answer"]

    def answer(self, statement: str, types: Sequence[str] = (), values: Sequence[Any] = ()) -> Any:
        """The same, from JSON."""
        return json.loads(self.value(statement, types, values))

    def arrays(self, statement: str, types: Sequence[str] = (), values: Sequence[Any] = ()) -> Row:
        """The only row, of parallel arrays; those of nothing, which PostgreSQL gives as null, are empty lists.

        Thousands of rows arrive in half the time that they take one by one.
        """
        row = self.rows(statement, types, values)[0]
        return {name: [] if value is None else value for name, value in row.items()}

    def done(self, phase: str) -> None:
        """Ends a phase: what has passed since the last one ended is its time."""
        now = time.monotonic()
        self.ms[phase] = round(self.ms.get(phase, 0.0) + (now - self._since) * 1000, 2)
        self._since = now

    def seconds(self) -> float:
        """Since the tick began."""
        return time.monotonic() - self.started
