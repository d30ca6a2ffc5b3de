"""The intake: a completion is acknowledged only when it is durable; bad reports are refused, and they alone."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from opencue_proto import report_pb2, report_pb2_grpc

from db.errors import MaestroError
from launcher.daemon import Daemon
from launcher.spool import Spool
from tests.launcher.farm import Farm


@asynccontextmanager
async def reporting(farm: Farm, **changes: Any) -> AsyncIterator[tuple[Daemon, Any]]:
    """A launcher that takes reports, and a stub to send it some."""
    async with farm.launcher(intake="127.0.0.1:0", **changes) as daemon:
        assert daemon.intake
        async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.intake.port}") as channel:
            yield daemon, report_pb2_grpc.RqdReportInterfaceStub(channel)


@contextmanager
def database_away(farm: Farm) -> Iterator[None]:
    """The farm's database refuses connections meanwhile."""
    name = farm.db.info.dbname
    with psycopg.connect(farm.dsn.replace(f"dbname={name}", "dbname=postgres"), autocommit=True) as admin:
        admin.execute(f"alter database {name} allow_connections false")
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and application_name like %s",
            [name, "maestro launcher%"],
        )
        try:
            yield
        finally:
            admin.execute(f"alter database {name} allow_connections true")


def completion(number: int = 1, **fields: Any) -> report_pb2.RqdReportRunningFrameCompletionRequest:
    report = {
        "host": {"name": "h0", "free_mem": 5}, "exit_status": 0, "run_time": 7,
        "frame": {"resource_id": f"proc-{number}", "frame_id": f"frame-{number}", "max_rss": 4}, **fields,
    }  # fmt: skip
    return report_pb2.RqdReportRunningFrameCompletionRequest(frame_complete_report=report)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_a_completion_is_committed_when_it_is_acknowledged(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        await stub.ReportRunningFrameCompletion(completion())
        row = farm.db.execute(
            "select pk_proc, pk_frame, host_name, exit_status, run_time_seconds, max_rss_kib from maestro.completion"
        ).fetchone()
    assert row == ("proc-1", "frame-1", "h0", 0, 7, 4)


async def test_completions_that_arrive_together_are_all_stored_in_few_calls(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        await asyncio.gather(*(stub.ReportRunningFrameCompletion(completion(n)) for n in range(500)))
        assert farm.one("select count(*) from maestro.completion") == 500
        assert farm.one("select count(distinct xmin::text) from maestro.completion") < 100


async def test_a_bad_completion_is_refused_and_the_others_of_its_batch_are_stored(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        stranger = completion(99, host={"name": "nobody-knows-me"})
        calls = [stub.ReportRunningFrameCompletion(each) for each in (completion(1), stranger, completion(2))]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[1], grpc.aio.AioRpcError)
    assert answers[1].code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "nobody-knows-me" in (answers[1].details() or "")
    assert farm.one("select array_agg(pk_proc order by pk_proc) from maestro.completion") == ["proc-1", "proc-2"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": {"name": ""}}, "host.name"),
        ({"frame": {"frame_id": "f", "resource_id": "p", "max_rss": -1}}, "max_rss"),
        ({"frame": {"resource_id": "p"}}, "frame_id"),
    ],
)
async def test_a_completion_that_cannot_be_meant_is_refused(farm: Farm, fields: dict[str, Any], said: str) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        code, words = await refusal(stub.ReportRunningFrameCompletion(completion(**fields)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in words
    assert "\n" not in words


async def test_a_clock_that_was_set_back_loses_no_completion(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        await stub.ReportRunningFrameCompletion(completion(run_time=-3600))
    assert farm.one("select run_time_seconds from maestro.completion") == 0


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({"name": ""}, "host.name"),
        ({"name": "h9", "total_mem": -1}, "total_mem"),
        ({"name": "h9", "num_procs": -2}, "num_procs"),
    ],
)
async def test_a_bad_host_report_is_refused_and_stores_nothing(farm: Farm, host: dict[str, Any], said: str) -> None:
    await farm.start()
    async with reporting(farm) as (_, stub):
        for call in (
            stub.ReportStatus(report_pb2.RqdReportStatusRequest(host_report={"host": host})),
            stub.ReportRqdStartup(report_pb2.RqdReportRqdStartupRequest(boot_report={"host": host})),
        ):
            code, words = await refusal(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert said in words
    assert farm.one("select count(*) from host") == 1


async def test_a_startup_makes_the_host_known_and_a_status_keeps_it_up(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("new")
    async with reporting(farm):
        await farm.fake.report_startup("new")
        assert farm.one("select int_cores from host where str_name = 'new'") == 3200
        farm.db.execute("update host_stat set ts_ping = now() - interval '1 hour'")
        await farm.fake.report_status("new")
    assert farm.one("select ts_ping > now() - interval '1 minute' from host_stat join host using (pk_host)"
                    " where str_name = 'new'")  # fmt: skip


async def test_of_many_reports_of_a_host_the_last_is_stored_and_all_are_answered(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (daemon, _):
        assert daemon.intake
        # Handed over directly: calls that are under way together reach the server in no particular order.
        reports = [
            {"name": "h0", "num_procs": 1, "cores_per_proc": 800, "total_mem": 10**7, "free_mem": free}
            for free in range(1, 101)
        ]
        take = daemon.intake.take_host
        await asyncio.gather(*(take("status", {"host": host, "frames": []}, 100) for host in reports))
    assert farm.one("select int_mem_free from host_stat") == 100


async def test_completions_survive_an_outage_of_the_database(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm) as (daemon, stub):
        await stub.ReportRunningFrameCompletion(completion(1))
        with database_away(farm):
            await asyncio.gather(*(stub.ReportRunningFrameCompletion(completion(n)) for n in range(2, 12)))
            lines = (farm.spool / "completions.0.jsonl").read_text().splitlines()
            assert [json.loads(line)["frame"]["resource_id"] for line in lines] == [f"proc-{n}" for n in range(2, 12)]
        await farm.until(lambda: farm.one("select count(*) from maestro.completion") == 11)
        await stub.ReportRunningFrameCompletion(completion(12))
        assert daemon.state.health["spooled"] == 0
    order = farm.one("select array_agg(pk_proc order by completion_id) from maestro.completion")
    assert order == [f"proc-{n}" for n in range(1, 13)]
    assert (farm.spool / "completions.0.jsonl").read_text() == ""


async def test_a_spool_that_a_crash_left_is_replayed_first_and_a_torn_line_dropped(farm: Farm) -> None:
    await farm.start()
    left = Spool(str(farm.spool))
    left.open()
    left.append([_as_stored(n) for n in range(3)])
    left.close()
    with (farm.spool / "completions.0.jsonl").open("a") as file:
        file.write('{"host": {"na')
    async with reporting(farm) as (_, stub):
        await stub.ReportRunningFrameCompletion(completion(3))
    order = farm.one("select array_agg(pk_proc order by completion_id) from maestro.completion")
    assert order == [f"proc-{n}" for n in range(4)]


async def test_a_spooled_report_that_is_refused_holds_up_no_other(farm: Farm) -> None:
    await farm.start()
    left = Spool(str(farm.spool))
    left.open()
    left.append([_as_stored(1), {**_as_stored(2), "host": {"name": "nobody-knows-me"}}, _as_stored(3)])
    left.close()
    async with reporting(farm):
        await farm.until(lambda: farm.one("select count(*) from maestro.completion") == 2)
    assert farm.one("select array_agg(pk_proc order by pk_proc) from maestro.completion") == ["proc-1", "proc-3"]


async def test_with_database_and_disk_both_away_rqd_is_told_to_come_again(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await farm.start()

    def full(self: Spool, reports: list[dict[str, Any]]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "append", full)
    async with reporting(farm) as (_, stub):
        with database_away(farm):
            code, words = await refusal(stub.ReportRunningFrameCompletion(completion()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "No space left" in words


async def test_host_reports_are_put_off_while_the_database_is_away(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm):
        with database_away(farm):
            code, _ = await refusal(farm.fake.report_status("h0"))
        assert code is grpc.StatusCode.UNAVAILABLE


def test_a_spool_append_that_fails_stores_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(str(tmp_path))
    spool.open()
    spool.append([{"n": 1}])
    import os

    real = os.fsync

    def fails(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        spool.append([{"n": 2}])
    monkeypatch.setattr(os, "fsync", real)
    assert spool.peek(10)[0] == [{"n": 1}]
    spool.close()


def test_two_launchers_keep_apart_and_the_last_takes_over_what_is_left(tmp_path: Path) -> None:
    one, two = Spool(str(tmp_path)), Spool(str(tmp_path))
    one.open()
    two.open()
    one.append([{"n": 1}])
    two.append([{"n": 2}])
    one.close()
    two.close()
    heir = Spool(str(tmp_path))
    heir.open()
    assert heir.peek(10)[0] == [{"n": 1}, {"n": 2}]
    heir.close()


def test_a_spool_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MaestroError, match="cannot use the spool"):
        Spool(str(tmp_path / "file" / "spool")).open()


def _as_stored(number: int) -> dict[str, Any]:
    from launcher import reports

    return reports.completion(completion(number).frame_complete_report)
