"""All scenarios, by name, in the order in which they run."""

from __future__ import annotations

from sim import (
    scenes_failover,
    scenes_life,
    scenes_limit,
    scenes_memory,
    scenes_share,
    scenes_speed,
    scenes_where,
    scenes_wide,
)
from sim.verify import Scenario

ALL: dict[str, Scenario] = {
    scenario.name: scenario
    for module in (
        scenes_speed, scenes_share, scenes_limit, scenes_where, scenes_wide, scenes_memory, scenes_life,
        scenes_failover,
    )  # fmt: skip
    for scenario in module.SCENARIOS
}
