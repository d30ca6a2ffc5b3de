"""The fake farm does what a real one would, and counts what must never happen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from opencue_proto import report_pb2, report_pb2_grpc, rqd_pb2

from launcher import salvage
from launcher.runframe import PROC_VARIABLE
from sim.fake_farm import DENIED, MEMORY_FAILURE, Behaviour, FakeFarm
from sim.fake_rqd import FakeHost

DEADLINE_S = 10.0


class Intake(report_pb2_grpc.RqdReportInterfaceServicer):  # type: ignore[misc]
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.ends: list[Any] = []

    async def ReportRunningFrameCompletion(self, request: Any, context: Any) -> Any:
        self.ends.append(request.frame_complete_report)
        return report_pb2.RqdReportRunningFrameCompletionResponse()

    async def ReportRqdStartup(self, request: Any, context: Any) -> Any:
        return report_pb2.RqdReportRqdStartupResponse()

    def statuses(self) -> dict[str, int]:
        return {end.frame.frame_id: end.exit_status for end in self.ends}


@contextlib.asynccontextmanager
async def farm(**behaviour: Any) -> AsyncIterator[tuple[FakeFarm, Intake]]:
    intake, server = Intake(), grpc.aio.server()
    report_pb2_grpc.add_RqdReportInterfaceServicer_to_server(intake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    made = FakeFarm(f"127.0.0.1:{port}", Behaviour(**behaviour))
    made.hosts = {name: FakeHost(name, cores=400, mem=8 << 20) for name in ("h0", "h1")}
    clock = asyncio.create_task(made.run_clock())
    try:
        yield made, intake
    finally:
        clock.cancel()
        await asyncio.gather(clock, return_exceptions=True)
        await made.stop()
        await server.stop(0)


def frame(name: str, cores: int = 100, log_dir: str = "", **environment: str) -> Any:
    return rqd_pb2.RunFrame(
        frame_id=name, frame_name=f"0001-{name}", job_name="job", resource_id=f"proc-{name}", num_cores=cores,
        log_dir=log_dir, environment={"CUE_MEMORY": "1048576", PROC_VARIABLE: f"proc-{name}", **environment},
    )  # fmt: skip


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the condition is another task's
            await asyncio.sleep(0.01)


async def test_frames_end_as_their_layers_environment_says() -> None:
    async with farm(seats={"seat": 1}) as (made, intake):
        host = made.hosts["h0"]
        made.begin(host, frame("good", SIM_RUN_S="0.05"))
        made.begin(host, frame("big", SIM_RUN_S="0.05", SIM_RSS_KIB="2000000"))
        made.begin(host, frame("bad", SIM_RUN_S="0.05", SIM_EXIT="7"))
        made.begin(host, frame("seated", SIM_RUN_S="0.3", SIM_LICENSE="seat"))
        made.begin(made.hosts["h1"], frame("denied", SIM_RUN_S="0.05", SIM_LICENSE="seat"))
        await until(lambda: len(intake.ends) == 5)
        assert intake.statuses() == {"good": 0, "big": MEMORY_FAILURE, "bad": 7, "seated": 0, "denied": DENIED}
        assert (made.totals.overbooked, made.totals.doubles, made.totals.denied) == (0, 0, 1)
        assert not made.where


async def test_a_frame_started_twice_and_a_host_given_too_much_are_counted() -> None:
    async with farm(run_s=60.0) as (made, _):
        made.begin(made.hosts["h0"], frame("one"))
        made.begin(made.hosts["h1"], frame("one"))
        made.begin(made.hosts["h1"], frame("wide", cores=400))
        assert (made.totals.doubles, made.totals.overbooked) == (1, 1)


async def test_a_host_that_dies_takes_frames_and_reports_with_it() -> None:
    async with farm(run_s=60.0, late=1.0, late_s=0.2) as (made, intake):
        made.begin(made.hosts["h0"], frame("running"))
        made.begin(made.hosts["h0"], frame("ended", SIM_RUN_S="0"))
        made.begin(made.hosts["h1"], frame("elsewhere", SIM_RUN_S="0"))
        await until(lambda: made.totals.ended == 2)
        made.crash("h0")
        await until(lambda: intake.ends and made.totals.vanished == 2)
        assert intake.statuses() == {"elsewhere": 0}
        await made.back("h0")
        assert made.hosts["h0"].running == {}


async def test_reports_are_repeated_and_lost_on_request() -> None:
    async with farm(run_s=0.01, repeat=1.0, late_s=0.01) as (made, intake):
        made.begin(made.hosts["h0"], frame("twice"))
        await until(lambda: len(intake.ends) == 2)
    async with farm(run_s=0.01, lost=1.0) as (made, intake):
        made.begin(made.hosts["h0"], frame("never"))
        await until(lambda: made.totals.unreported == 1)
        assert intake.ends == []


async def test_a_kill_ends_the_run_at_once() -> None:
    async with farm(run_s=60.0) as (made, intake):
        made.begin(made.hosts["h0"], frame("long"))
        await made.finish("h0", "long")
        await until(lambda: intake.ends)
        assert (intake.ends[0].exit_signal, made.totals.killed) == (9, 1)


async def test_logs_tell_launchers_how_a_run_ended(tmp_path: Path) -> None:
    async with farm(logs=True, lost=1.0) as (made, _):
        made.begin(made.hosts["h0"], frame("one", log_dir=str(tmp_path), SIM_RUN_S="0.01", SIM_EXIT="3"))
        assert salvage.look(str(tmp_path), "job", "0001-one", "proc-one")[0] is salvage.Trace.STARTED
        await until(lambda: made.totals.ended == 1)
        trace, ending = salvage.look(str(tmp_path), "job", "0001-one", "proc-one")
        assert (trace, ending.exit_status if ending else None) == (salvage.Trace.ENDED, 3)
        made.begin(made.hosts["h0"], frame("one", log_dir=str(tmp_path), SIM_RUN_S="60"))
        assert (tmp_path / "job.0001-one.rqlog.1").exists()


async def test_busy_cores_are_counted_by_the_second() -> None:
    async with farm(run_s=60.0) as (made, _):
        made.begin(made.hosts["h0"], frame("one", cores=300))
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 0.2)
        answer = await made.obey({"do": "stats"})
        assert answer["core_seconds"] == pytest.approx(3 * (time.monotonic() - began), rel=0.3)
        assert answer["cores_running"] == 3
