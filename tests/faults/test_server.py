"""The database server stops, starts, crashes: the farm goes on where it was, and no frame is lost or run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db import schedule
from db.cluster import Cluster
from tests.faults.busy import busy_farm
from tests.faults.chaos import ticking
from tests.faults.clusters import kill_server, own_cluster, wait

FRAMES = 200
RESUME_S = 30.0


@pytest.fixture
def server() -> Iterator[Cluster]:
    with own_cluster() as made:
        yield made


async def test_a_server_that_stops_and_starts_while_the_farm_is_busy_costs_no_frame(
    server: Cluster, tmp_path: Path
) -> None:
    async with busy_farm(server.dsn(), tmp_path, FRAMES) as farm:
        with ticking(server.dsn(), 0.3):
            await farm.until_busy(FRAMES // 8)
            await asyncio.to_thread(server.stop)
            # What runs ends meanwhile: its completions are on disk before they are acknowledged.
            await farm.fake.until(lambda: not any(host.running for host in farm.fake.hosts.values()))
            await asyncio.to_thread(server.start)
            farm.reconnect()
            await farm.until_done(FRAMES)
        farm.ran_once(FRAMES)


async def test_after_a_crash_in_mid_tick_pg_cron_ticks_again_and_nothing_runs_twice(
    server: Cluster, tmp_path: Path
) -> None:
    async with busy_farm(server.dsn(), tmp_path, FRAMES) as farm:
        schedule.schedule(farm.db, 300)
        with ticking(server.dsn(), 0.3):
            await farm.until_busy(FRAMES // 8)
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                wait(lambda: connection.execute(
                    "select from pg_stat_activity where state = 'active' and application_name = 'maestro'"
                    " and query like '%maestro_tick()%'"
                ).fetchone() is not None)  # fmt: skip
                kill_server(server)
        # From here on pg_cron alone ticks.
        await asyncio.to_thread(server.start)
        farm.reconnect()
        ticks = farm.one("select coalesce(max(tick_id), 0) from maestro.tick")
        await farm.until(lambda: farm.one("select max(tick_id) > %s from maestro.tick", ticks), RESUME_S)
        await farm.until_done(FRAMES)
        farm.ran_once(FRAMES)
        assert farm.one("select count(*) from pg_locks where locktype = 'advisory'") <= 1
