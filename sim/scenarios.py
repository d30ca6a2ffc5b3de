"""All scenarios, by name, in the order in which they run."""

from __future__ import annotations

from sim import scenes_life, scenes_plan
from sim.verify import Scenario

ALL: dict[str, Scenario] = {scenario.name: scenario for scenario in (*scenes_plan.SCENARIOS, *scenes_life.SCENARIOS)}
