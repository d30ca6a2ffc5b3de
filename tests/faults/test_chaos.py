"""Everything goes wrong at once, and still every frame runs to success once, and the books balance."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.chaos import Chaos, launchers, report_states, ticking
from tests.faults.lossy import LossyRqd
from tests.launcher.farm import Farm


async def _survives(
    farm: Farm, directory: Path, *, frames: int, hosts: int, cores: int, kill_s: float, end_s: float, seed: int,
    within_s: float,
) -> Chaos:  # fmt: skip
    fake = farm.fake = LossyRqd(seed)
    await farm.start(hosts=hosts, cores=cores)
    farm.set("log_root", directory / "logs")
    farm.set("launch_confirm_seconds", 2)
    deadlocks = farm.one("select deadlocks from pg_stat_database where datname = current_database()")
    done = "select count(*) = %s from frame where str_state = 'SUCCEEDED'"
    chaos = Chaos(farm.dsn, seed)
    async with launchers(farm.dsn, directory, 2) as (processes, intakes), asyncio.TaskGroup() as group:
        fake.report_to_any(intakes)
        with ticking(farm.dsn, 0.3) as ticks:
            reporting = group.create_task(report_states(fake, 2.0))
            group.create_task(chaos.kill_launchers(processes, kill_s))
            group.create_task(chaos.end_ticks(end_s))
            try:
                farm.submit(frames)
                await farm.until(lambda: farm.one(done, frames), within_s)
            finally:
                chaos.over.set()
                reporting.cancel()
            # What is still under way, repeats included, must change nothing.
            await farm.until(
                lambda: farm.one("select not exists (select from maestro.completion)")
                and farm.one("select not exists (select from proc)")
            )
        wrong = [error for answer in ticks.answers for error in answer.get("errors", [])]
    assert wrong == []
    assert fake.overlaps == []
    assert Counter(fake.successes.values()) == {1: frames}
    assert Counter(fake.starts.values()) == {1: frames}
    assert farm.states() == {"SUCCEEDED": frames}
    assert farm.one("select max(int_retries) from frame") == 0
    assert farm.one("select str_state from job") == "FINISHED"
    assert farm.one("select deadlocks from pg_stat_database where datname = current_database()") == deadlocks
    assert set(fake.lost) >= {"launch request", "launch answer", "completion"}
    farm.check()
    return chaos


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
async def test_every_frame_succeeds_once_whatever_is_lost_repeated_or_killed(
    farm: Farm, tmp_path: Path, seed: int
) -> None:
    chaos = await _survives(
        farm, tmp_path, frames=400, hosts=16, cores=4, kill_s=3.0, end_s=2.0, seed=seed, within_s=150
    )
    assert chaos.launchers_killed >= 2
    assert chaos.ticks_ended >= 2


@pytest.mark.soak
async def test_ten_thousand_frames_succeed_once_whatever_is_lost_repeated_or_killed(farm: Farm, tmp_path: Path) -> None:
    chaos = await _survives(
        farm, tmp_path, frames=10_000, hosts=12, cores=8, kill_s=10.0, end_s=15.0, seed=7, within_s=1800
    )
    assert chaos.launchers_killed >= 10
    assert chaos.ticks_ended >= 5
