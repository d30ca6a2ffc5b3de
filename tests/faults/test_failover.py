"""The primary dies and its standby takes over: ticks and launchers go on there, and nothing is launched twice."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from db import schedule
from tests.faults.busy import busy_farm
from tests.faults.chaos import ticking
from tests.faults.clusters import kill_server, own_cluster, promote, standby_of

FRAMES = 250
RESUME_S = 30.0


async def test_a_promoted_standby_goes_on_where_the_primary_died(tmp_path: Path) -> None:
    with own_cluster() as primary, standby_of(primary) as standby:
        both = (
            f"host=127.0.0.1,127.0.0.1 port={primary.port()},{standby.port()} user=postgres dbname=maestro"
            " target_session_attrs=read-write"
        )
        async with busy_farm(primary.dsn(), tmp_path, FRAMES, launcher_dsn=both) as farm:
            schedule.schedule(farm.db, 300)
            farm.db.execute("update maestro.setting set value = '250' where name = 'completions_per_tick_max'")
            with ticking(primary.dsn(), 0.3):
                await farm.until_busy(FRAMES // 8)
                kill_server(primary)
            began = time.monotonic()
            await asyncio.to_thread(promote, standby)
            farm.reconnect(standby.dsn())
            before = farm.one("select max(tick_id) from maestro.tick")
            await farm.until(lambda: farm.one("select max(tick_id) > %s from maestro.tick", before), RESUME_S)
            assert time.monotonic() - began < RESUME_S
            await farm.until_done(FRAMES)
            farm.ran_once(FRAMES)
            assert farm.one("select value from maestro.setting where name = 'completions_per_tick_max'") == "250"
