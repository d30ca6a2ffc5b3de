"""The intake's borders: who may report, how large a message may be, how many may wait, and TLS."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from opencue_proto import report_pb2, report_pb2_grpc

from db import packages
from db.errors import MaestroError
from launcher.config import networks
from launcher.intake import is_welcome
from launcher.spool import Spool
from tests.launcher.farm import QUICK, Farm
from tests.launcher.test_intake import completion, database_away, refusal, reporting

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("peer", "allowed", "welcome"),
    [
        ("10.1.2.3", "", True),
        ("10.1.2.3", "10.1.0.0/16", True),
        ("10.2.2.3", "10.1.0.0/16, 127.0.0.1", False),
        ("127.0.0.1", "10.1.0.0/16, 127.0.0.1", True),
        ("::1", "::1", True),
        ("fd00::7", "fd00::/8", True),
        ("fe80::7%eth0", "fd00::/8", False),
        ("::ffff:10.1.2.3", "10.1.0.0/16", True),
        ("", "10.1.0.0/16", False),
    ],
)
def test_a_peer_is_welcome_from_the_networks_allowed(peer: str, allowed: str, welcome: bool) -> None:
    assert is_welcome(peer, networks(allowed)) is welcome


async def test_reports_from_other_networks_are_refused_and_store_nothing(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm, intake_networks="10.99.0.0/16") as (_, stub):
        calls = (
            stub.ReportRunningFrameCompletion(completion()),
            stub.ReportStatus(report_pb2.RqdReportStatusRequest(host_report={"host": {"name": "new"}})),
            stub.ReportRqdStartup(report_pb2.RqdReportRqdStartupRequest(boot_report={"host": {"name": "new"}})),
        )
        for call in calls:
            assert (await refusal(call))[0] is Code.PERMISSION_DENIED
    assert farm.one("select (select count(*) from maestro.completion) + (select count(*) from host)") == 1


async def test_a_message_beyond_the_limit_is_refused_and_the_next_is_taken(farm: Farm) -> None:
    await farm.start()
    async with reporting(farm, message_max_bytes=65_536) as (_, stub):
        large = completion(1, host={"name": "h0", "tags": ["x" * 100_000]})
        assert (await refusal(stub.ReportRunningFrameCompletion(large)))[0] is Code.RESOURCE_EXHAUSTED
        await stub.ReportRunningFrameCompletion(completion(2))
    assert farm.one("select array_agg(pk_proc) from maestro.completion") == ["proc-2"]


@pytest.mark.parametrize("bound", [{"reports_max": 5}, {"reports_max_mb": 1}])
async def test_more_reports_than_may_wait_are_put_off_and_none_of_the_others_is_lost(
    farm: Farm, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await farm.start()
    taken: list[str] = []
    put_off: list[Code] = []
    async with reporting(farm, **bound) as (daemon, stub):
        assert daemon.intake
        go_on = asyncio.Event()
        insert = daemon.intake._insert

        async def slow(batch: list[dict[str, object]]) -> None:
            await go_on.wait()
            await insert(batch)

        monkeypatch.setattr(daemon.intake, "_insert", slow)

        async def send(number: int) -> None:
            report = completion(number, host={"name": "h0", "tags": ["x" * 200_000]})
            try:
                await stub.ReportRunningFrameCompletion(report)
                taken.append(f"proc-{number}")
            except grpc.aio.AioRpcError as error:
                put_off.append(error.code())
            if len(put_off) == 20:
                go_on.set()

        await asyncio.wait_for(asyncio.gather(*(send(number) for number in range(40))), 30)
        # With room again, reports are taken again.
        await stub.ReportRunningFrameCompletion(completion(99))
        taken.append("proc-99")
    assert set(put_off) == {Code.UNAVAILABLE}
    assert sorted(farm.one("select array_agg(pk_proc) from maestro.completion")) == sorted(taken)


def _certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate of localhost and its key."""
    packages.ensure(("openssl",))
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, cert


async def test_with_a_certificate_the_intake_speaks_tls_alone_and_knows_its_reporters(
    farm: Farm, tmp_path: Path
) -> None:
    await farm.start()
    key, cert = _certificate(tmp_path, "intake")
    farm_key, farm_cert = _certificate(tmp_path, "farm")
    files = {"intake_key": str(key), "intake_cert": str(cert), "intake_client_ca": str(farm_cert)}
    async with farm.launcher(intake="localhost:0", **files) as daemon:
        assert daemon.intake
        target = f"localhost:{daemon.intake.port}"
        ours = grpc.ssl_channel_credentials(cert.read_bytes(), farm_key.read_bytes(), farm_cert.read_bytes())
        async with grpc.aio.secure_channel(target, ours) as channel:
            await report_pb2_grpc.RqdReportInterfaceStub(channel).ReportRunningFrameCompletion(completion(1))
        strangers = grpc.ssl_channel_credentials(cert.read_bytes())
        for channel in (grpc.aio.insecure_channel(target), grpc.aio.secure_channel(target, strangers)):
            async with channel:
                stub = report_pb2_grpc.RqdReportInterfaceStub(channel)
                code, _ = await refusal(stub.ReportRunningFrameCompletion(completion(2), timeout=5))
                assert code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    assert farm.one("select array_agg(pk_proc) from maestro.completion") == ["proc-1"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"intake_cert": "a.pem"}, "intake_key"),
        ({"intake_client_ca": "a.pem"}, "intake_client_ca"),
        ({"intake_networks": "10.1.0.0/16, elsewhere"}, "elsewhere"),
        ({"reports_max_mb": 0}, "reports_max_mb"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(MaestroError, match=said):
        replace(QUICK, **changes).validate()  # type: ignore[arg-type]


async def test_files_that_are_no_certificate_end_the_launcher_with_one_clear_error(farm: Farm, tmp_path: Path) -> None:
    await farm.start()
    (tmp_path / "a.pem").write_text("no certificate")
    for cert, said in ((tmp_path / "a.pem", "cannot serve TLS"), (tmp_path / "absent.pem", "cannot read")):
        with pytest.raises(ExceptionGroup) as caught:
            async with farm.launcher(intake="127.0.0.1:0", intake_cert=str(cert), intake_key=str(cert)):
                pass
        assert said in str(caught.value.exceptions[0])


async def test_a_spool_is_not_part_of_what_waits(farm: Farm) -> None:
    """What is safe on disk takes no room: an outage of any length puts nobody off."""
    await farm.start()
    async with reporting(farm, reports_max=5) as (_, stub):
        with database_away(farm):
            for number in range(30):
                await stub.ReportRunningFrameCompletion(completion(number))
        await farm.until(lambda: farm.one("select count(*) from maestro.completion") == 30)
    left = Spool(str(farm.spool))
    left.open()
    assert left.depth == 0
    left.close()
