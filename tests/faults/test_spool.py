"""A disk that is full while the database is away: what cannot be made durable is not acknowledged."""

from __future__ import annotations

import asyncio
import resource

import grpc
from opencue_proto import report_pb2_grpc

from db.cluster import free_port
from tests.launcher.farm import Farm, process
from tests.launcher.test_intake import completion, database_away

ROOM = 32 * 1024  # bytes that a file may grow to; a kernel's limit acts as a full disk does
REPORTS = 300


async def test_with_the_disk_full_only_what_is_durable_is_acknowledged_and_it_survives_a_kill(farm: Farm) -> None:
    await farm.start()
    intake = f"127.0.0.1:{free_port()}"
    taken: set[str] = set()
    refused: list[grpc.aio.AioRpcError] = []
    async with grpc.aio.insecure_channel(intake) as channel:
        stub = report_pb2_grpc.RqdReportInterfaceStub(channel)

        async def send(number: int) -> None:
            try:
                await stub.ReportRunningFrameCompletion(completion(number), wait_for_ready=True, timeout=30)
                taken.add(f"proc-{number}")
            except grpc.aio.AioRpcError as error:
                refused.append(error)

        async with process(farm, intake=intake, log_level="error") as child:
            await send(0)
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (ROOM, ROOM))
            with database_away(farm):
                for first in range(1, REPORTS, 20):
                    await asyncio.gather(*(send(number) for number in range(first, first + 20)))
                child.kill()
                await child.wait()
        assert {error.code() for error in refused} == {grpc.StatusCode.UNAVAILABLE}
        assert "spool failed" in (refused[0].details() or "")
        assert len(taken) > 20
        assert (farm.spool / "completions.0.jsonl").stat().st_size <= ROOM
        async with process(farm, intake=intake, log_level="error"):
            await send(REPORTS * 2)
            await farm.until(lambda: farm.one("select count(*) >= %s from maestro.completion", len(taken)))
    stored = [row[0] for row in farm.db.execute("select pk_proc from maestro.completion").fetchall()]
    assert sorted(stored) == sorted(taken)
