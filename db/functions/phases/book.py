"""Phase 8: books the plan; what an error or a guard keeps out is named."""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple

from phases.session import Session, numbers
from planner import tick

COMMIT = (
    "select maestro.commit_plan($1, $2, $3, $4, $5::int[], $6::int[], $7::int[], $8::bigint[], $9::int[],"
    " $10::bigint[], $11::bigint[]) as answer"
)
COMMIT_TYPES = ["bigint", "timestamptz", "text[]", "text[]", *["text"] * 7]
# Classes of errors that are the server's (deadlock, cancel, a lock not to be had, out of memory): they blame no layer.
SERVER_ERRORS = ("40", "53", "54", "55", "57", "58")


class Outcome(NamedTuple):
    """What became of the plan's slots."""

    committed: int
    dropped: Dict[str, int]  # reason -> slots
    lost: Dict[int, str]  # slot, from 0 -> its outcome, of those that were not booked


def book(session: Session, tick_id: int, now: str, decision: tick.Decision) -> Outcome:
    """Commit the whole decision, or after an error halves of it, until the layer that raises stands alone."""
    committed = 0
    dropped: Dict[str, int] = {}
    lost: Dict[int, str] = {}
    if not decision.slot_layer:
        return Outcome(0, dropped, lost)
    plpy = session.plpy
    commit = plpy.prepare(COMMIT, COMMIT_TYPES)
    parts: List[List[int]] = [list(range(len(decision.slot_layer)))]
    while parts:
        slots = parts.pop()
        piece = decision if len(slots) == len(decision.slot_layer) else tick.part(decision, slots)
        try:
            values = [tick_id, now, piece.layers, piece.hosts, *map(numbers, piece[2:8]), numbers(piece.asks)]
            with plpy.subtransaction():
                result = json.loads(plpy.execute(commit, values)[0]["answer"])
        except plpy.SPIError as error:
            if error.sqlstate[:2] in SERVER_ERRORS:
                raise
            halves = tick.halves(decision, slots)
            if halves:
                parts.extend(halves)
                continue
            layer = decision.layers[decision.slot_layer[slots[0]] - 1]
            session.errors.append({"what": "layer " + layer, "message": str(error)})
            result = {"committed": 0, "dropped": {"error": len(slots)}, "lost": list(range(1, len(slots) + 1))}
            lost.update(dict.fromkeys(slots, "error"))
        committed += result["committed"]
        for reason, count in result["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
        for number in result["lost"]:
            lost.setdefault(slots[number - 1], "dropped")
    return Outcome(committed, dropped, lost)
