"""Fake RQDs that speak the real protocol: one process, one port, any number of hosts.

Every host of a farm is dialled at this port (maestro.host_dial); the launcher names the host it means in the call's
metadata. Nothing is run: a frame ends after `run_seconds`, and its completion is reported to the intake as stock RQD
does, once. Faults are switched on a host at a time. As with stock RQD, GetRunningFrameStatus fails for every frame.

    python -m sim.fake_rqd --port 8500 --intake 127.0.0.1:8443 --hosts 100 --run-seconds 2
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from opencue_proto import host_pb2, report_pb2, report_pb2_grpc, rqd_pb2, rqd_pb2_grpc

from launcher.rqd import HOST_KEY

Code = grpc.StatusCode
KIB_PER_GIB = 1024 * 1024


class Fault(enum.Enum):
    NONE = "none"
    REFUSE = "refuse"  # answers every launch as RQD does without idle cores
    HANG = "hang"  # does nothing, answers nothing
    LOSE_ANSWER = "lose answer"  # does what it is told, answers nothing to a launch
    IGNORE_LAUNCHES = "ignore launches"  # answers everything but launches, which it does not do either
    DEAD = "dead"  # answers every call as a host without RQD


@dataclass
class FakeHost:
    """One host: what it runs (frame id -> RunFrame) and what is wrong with it."""

    name: str
    cores: int = 3200  # core points
    mem: int = 64 * KIB_PER_GIB  # KiB
    gpus: int = 0
    gpu_mem: int = 0  # KiB
    tags: tuple[str, ...] = ("general",)
    fault: Fault = Fault.NONE
    running: dict[str, rqd_pb2.RunFrame] = field(default_factory=dict)
    restarting: bool = False


@dataclass(frozen=True)
class Exit:
    """How a fake frame ends."""

    status: int = 0
    signal: int = 0
    max_rss: int = 100 * 1024  # KiB


RunSeconds = float | Callable[[Any], float | None] | None


class FakeRqd(rqd_pb2_grpc.RqdInterfaceServicer):  # type: ignore[misc]
    """The server. `launches` lists (host, frame id, resource id) of every frame that was started."""

    def __init__(
        self, *, intake: str | None = None, run_seconds: RunSeconds = None,
        ending: Callable[[rqd_pb2.RunFrame], Exit] = lambda frame: Exit(), reports: bool = True,
    ) -> None:  # fmt: skip
        """`intake` host:port takes the reports; `run_seconds` None lets frames run until `finish` ends them; `reports`
        False loses completions, as RQD does when nobody answers."""
        self._intake = intake
        self._run_seconds = run_seconds
        self._ending = ending
        self.reports = reports
        self.refusal = "Not launching, insufficient idle cores"  # what a host with fault REFUSE says
        self.hosts: dict[str, FakeHost] = {}
        self.launches: list[tuple[str, str, str]] = []
        self.kills: list[tuple[str, str]] = []
        self.completed = 0  # completions that the intake took
        self.unreported = 0  # completions that nobody took
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: Any = None
        self._channels: list[Any] = []
        self._stub: Any = None
        self.port = 0

    # Life

    async def start(self, address: str = "127.0.0.1:0") -> str:
        """Serve; returns the target to dial."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        rqd_pb2_grpc.add_RqdInterfaceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(address)
        await self._server.start()
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)
        for channel in self._channels:
            await channel.close()

    def host(self, name: str) -> FakeHost:
        return self.hosts.setdefault(name, FakeHost(name))

    async def until(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Wait until something that happened here makes the condition true; TimeoutError else."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()

    # What launchers call

    async def _called(self, context: Any) -> FakeHost:
        named = dict(context.invocation_metadata() or ())
        host = self.host(str(named.get(HOST_KEY, "")))
        if host.fault is Fault.HANG:
            await asyncio.Event().wait()
        if host.fault is Fault.DEAD:
            await context.abort(Code.UNAVAILABLE, "failed to connect to all addresses")
        return host

    async def LaunchFrame(self, request: rqd_pb2.RqdStaticLaunchFrameRequest, context: Any) -> Any:
        host = await self._called(context)
        frame = request.run_frame
        if host.fault is Fault.IGNORE_LAUNCHES:
            await asyncio.Event().wait()
        if host.fault is Fault.REFUSE:
            await self._refuse(context, self.refusal)
        if frame.frame_id in host.running:
            await self._refuse(context, f"Not launching, frame is already running on this proc {frame.frame_id}")
        if host.restarting:
            await self._refuse(context, "Not launching, rqd is waiting for idle to shutdown")
        self.begin(host, frame)
        if host.fault is Fault.LOSE_ANSWER:
            await asyncio.Event().wait()
        return rqd_pb2.RqdStaticLaunchFrameResponse()

    @staticmethod
    async def _refuse(context: Any, words: str) -> None:
        await context.abort(Code.UNKNOWN, f"Exception calling application: {words}")

    async def ReportStatus(self, request: Any, context: Any) -> Any:
        host = await self._called(context)
        return rqd_pb2.RqdStaticReportStatusResponse(host_report=self.status_report(host))

    async def GetRunningFrameStatus(self, request: Any, context: Any) -> Any:
        await self._called(context)
        await context.abort(Code.UNKNOWN, "Exception calling application: frameId")

    async def KillRunningFrame(self, request: rqd_pb2.RqdStaticKillRunningFrameRequest, context: Any) -> Any:
        host = await self._called(context)
        if request.frame_id not in host.running:
            await context.abort(Code.NOT_FOUND, f"The requested frame was not found. frameId: {request.frame_id}")
        self.kills.append((host.name, request.frame_id))
        await self.finish(host.name, request.frame_id, Exit(status=1, signal=9))
        return rqd_pb2.RqdStaticKillRunningFrameResponse()

    async def RestartRqdIdle(self, request: Any, context: Any) -> Any:
        await self._called(context)
        await context.abort(Code.UNIMPLEMENTED, "Restarting an idle RQD is not supported by Python RQD.")

    async def ShutdownRqdIdle(self, request: Any, context: Any) -> Any:
        host = await self._called(context)
        host.restarting = True
        self._note()
        return rqd_pb2.RqdStaticShutdownIdleResponse()

    # Frames

    def begin(self, host: FakeHost, frame: Any) -> None:
        """Start a frame (a RunFrame)."""
        host.running[frame.frame_id] = frame
        self.launches.append((host.name, frame.frame_id, frame.resource_id))
        self._note()
        seconds = self._run_seconds(frame) if callable(self._run_seconds) else self._run_seconds
        if seconds is not None:
            self._spawn(self._run(host, frame, seconds))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, host: FakeHost, frame: rqd_pb2.RunFrame, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if frame.frame_id in host.running and host.running[frame.frame_id] is frame:
            await self.finish(host.name, frame.frame_id, self._ending(frame))

    async def finish(self, host_name: str, frame_id: str, ending: Exit | None = None) -> None:
        """End a frame: it is forgotten first and reported then, once, as stock RQD does."""
        host = self.hosts[host_name]
        frame = host.running.pop(frame_id)
        ending = ending or Exit()
        taken = False
        if self.reports and self._intake:
            report = report_pb2.FrameCompleteReport(
                host=self._render_host(host), frame=self._info(frame, ending.max_rss), exit_status=ending.status,
                exit_signal=ending.signal, run_time=max(int(time.time() - frame.start_time / 1000), 0),
            )  # fmt: skip
            with contextlib.suppress(grpc.RpcError):
                await self._reports().ReportRunningFrameCompletion(
                    report_pb2.RqdReportRunningFrameCompletionRequest(frame_complete_report=report), timeout=60
                )
                taken = True
        self.completed += taken
        self.unreported += not taken
        self._note()

    def forget(self, host_name: str) -> None:
        """What a restart of RQD does: its frames are forgotten, and nobody is told."""
        self.hosts[host_name].running.clear()

    # Reports to the intake

    def report_to(self, intake: str) -> None:
        """Send reports to another intake (host:port) from now on."""
        self._intake = intake
        self._stub = None

    def _reports(self) -> Any:
        if self._stub is None:
            quick = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
            channel = grpc.aio.insecure_channel(self._intake, options=quick)
            self._channels.append(channel)
            self._stub = report_pb2_grpc.RqdReportInterfaceStub(channel)
        return self._stub

    async def report_startup(self, host_name: str) -> None:
        host = self.host(host_name)
        report = report_pb2.BootReport(host=self._render_host(host), core_info=self._core_info(host))
        await self._reports().ReportRqdStartup(
            report_pb2.RqdReportRqdStartupRequest(boot_report=report), timeout=60, wait_for_ready=True
        )

    async def report_status(self, host_name: str) -> None:
        report = self.status_report(self.host(host_name))
        await self._reports().ReportStatus(report_pb2.RqdReportStatusRequest(host_report=report), timeout=60)

    async def report_forever(self, every_s: float) -> None:
        """Each host reports once an interval, spread over it."""
        while True:
            names = list(self.hosts)
            for name in names:
                with contextlib.suppress(grpc.RpcError):
                    await self.report_status(name)
                await asyncio.sleep(every_s / max(len(names), 1))
            if not names:
                await asyncio.sleep(every_s)

    def status_report(self, host: FakeHost) -> report_pb2.HostReport:
        return report_pb2.HostReport(
            host=self._render_host(host),
            frames=[self._info(frame, Exit().max_rss) for frame in host.running.values()],
            core_info=self._core_info(host),
        )

    @staticmethod
    def _core_info(host: FakeHost) -> report_pb2.CoreDetail:
        booked = sum(frame.num_cores for frame in host.running.values())
        return report_pb2.CoreDetail(total_cores=host.cores, idle_cores=host.cores - booked, booked_cores=booked)

    @staticmethod
    def _render_host(host: FakeHost) -> report_pb2.RenderHost:
        return report_pb2.RenderHost(
            name=host.name, num_procs=1, cores_per_proc=host.cores, total_mem=host.mem, free_mem=host.mem,
            total_swap=KIB_PER_GIB, free_swap=KIB_PER_GIB, total_mcp=100 * KIB_PER_GIB, free_mcp=100 * KIB_PER_GIB,
            boot_time=int(time.time()) - 3600, tags=host.tags, state=host_pb2.UP, attributes={"SP_OS": "Linux"},
            num_gpus=host.gpus, total_gpu_mem=host.gpu_mem, free_gpu_mem=host.gpu_mem,
        )  # fmt: skip

    @staticmethod
    def _info(frame: rqd_pb2.RunFrame, rss: int) -> report_pb2.RunningFrameInfo:
        return report_pb2.RunningFrameInfo(
            resource_id=frame.resource_id, job_id=frame.job_id, job_name=frame.job_name, frame_id=frame.frame_id,
            frame_name=frame.frame_name, layer_id=frame.layer_id, num_cores=frame.num_cores,
            start_time=frame.start_time, rss=rss, max_rss=rss, vsize=2 * rss, max_vsize=2 * rss,
        )  # fmt: skip


async def _main(options: argparse.Namespace) -> None:
    fake = FakeRqd(intake=options.intake, run_seconds=options.run_seconds)
    await fake.start(f"127.0.0.1:{options.port}")
    for number in range(options.hosts):
        name = f"{options.prefix}{number:05d}"
        fake.hosts[name] = FakeHost(name, cores=options.cores * 100, mem=options.mem_gib * KIB_PER_GIB)
        if options.startup:
            await fake.report_startup(name)
    print(f"{options.hosts} fake hosts at 127.0.0.1:{fake.port}", flush=True)
    await fake.report_forever(options.report_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.fake_rqd", description="Fake RQDs at one port.")
    parser.add_argument("--port", type=int, default=0, help="port to serve at [default: any free one]")
    parser.add_argument("--intake", required=True, metavar="HOST:PORT", help="where reports go")
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--prefix", default="fake", help="host names are this and a number [default: fake]")
    parser.add_argument("--cores", type=int, default=32, help="cores a host [default: 32]")
    parser.add_argument("--mem-gib", type=int, default=64, help="memory a host, GiB [default: 64]")
    parser.add_argument("--run-seconds", type=float, default=1.0, help="how long frames run [default: 1]")
    parser.add_argument("--report-seconds", type=float, default=10.0, help="between reports of a host [default: 10]")
    parser.add_argument("--startup", action="store_true", help="report every host's start first")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
