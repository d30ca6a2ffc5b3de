"""/metrics and /healthz."""

from __future__ import annotations

import asyncio
import json

from launcher.metrics_server import MetricsServer
from tests.launcher.farm import Farm

NAMES = (
    "cue_maestro_waiting_frames", "cue_maestro_booked_frames_locality_total", "cue_farm_health_stranded_cores",
    "cue_maestro_show_cores", "cue_maestro_frames_dispatched_total", "cue_maestro_tick_duration_seconds",
    "cue_maestro_group_pass_total", "cue_maestro_groups", "cue_maestro_farm_cores", "cue_maestro_running_frames",
    "cue_maestro_launch_queue_depth", "cue_maestro_completion_queue_depth", "cue_maestro_launch_oldest_seconds",
    "cue_maestro_launch_seconds", "cue_maestro_launches_total", "cue_maestro_drift_repaired_total",
)  # fmt: skip


async def test_the_figures_of_the_farm_are_served(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.registered.is_set())
        server = MetricsServer(daemon.state)
        await server.answer("/metrics")
        farm.book(3)
        await farm.until(lambda: farm.open_launches() == 0)
        server._refreshed = 0.0
        status, _, body = await server.answer("/metrics")
        await server.close()
    text = body.decode()
    assert status == "200 OK"
    for name in NAMES:
        assert f"\n# TYPE {name.removesuffix('_total')}" in text or f"\n# TYPE {name}" in text, name
    assert 'cue_maestro_frames_dispatched_total{show="demo"} 3.0' in text
    assert 'cue_maestro_launches_total{outcome="launched"} 3.0' in text
    assert 'cue_maestro_wait_seconds_count{show="demo"} 3.0' in text
    assert "cue_maestro_running_frames 3.0" in text
    assert 'cue_maestro_farm_cores{state="total"} 8.0' in text
    assert 'cue_maestro_show_cores{show="demo"} 3.0' in text


async def test_how_planning_ended_and_what_it_left_idle_is_served(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.registered.is_set())
        server = MetricsServer(daemon.state)
        farm.tick()
        await server.answer("/metrics")
        for stats in (
            {"groups": 2, "cut": 0, "out_of_time": False},
            {"groups": 2, "cut": 7, "out_of_time": False},
            {"groups": 4, "cut": 0, "out_of_time": True, "stranded": {"one": 3, "two": 2}},
        ):
            farm.db.execute(
                "insert into maestro.tick (started_at, status, stats) values (now(), 'planned', %s)",
                [json.dumps(stats)],
            )
        server._refreshed = 0.0
        _, _, body = await server.answer("/metrics")
        await server.close()
    text = body.decode()
    for reason, groups in (("completed", 2), ("cut", 2), ("out_of_time", 4)):
        assert f'cue_maestro_group_pass_total{{reason="{reason}"}} {groups}.0' in text
    assert "cue_farm_health_stranded_cores 5.0" in text


async def test_health_is_served_over_http(farm: Farm, unused_tcp_port: int) -> None:
    await farm.start()
    async with farm.launcher(metrics=f"127.0.0.1:{unused_tcp_port}") as daemon:
        await farm.until(lambda: daemon.state.health.get("database"))
        head, body = await _get(unused_tcp_port, "/healthz")
        assert head.startswith("HTTP/1.1 200 OK")
        assert json.loads(body)["database"] is True
        head, _ = await _get(unused_tcp_port, "/nothing")
        assert head.startswith("HTTP/1.1 404")


async def _get(port: int, path: str) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = text.partition("\r\n\r\n")
    return head, body
