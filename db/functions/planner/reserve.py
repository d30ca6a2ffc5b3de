"""Holds hosts for work too wide to fit while small frames stream by (reference section 3.2)."""

from __future__ import annotations

from typing import List

from planner.model import Host, Layer, Plan


def reserve(hosts: List[Host], layers: List[Layer], plan: Plan) -> Plan:
    """The plan with reservations. None are granted yet: every blocked layer simply waits."""
    return plan
