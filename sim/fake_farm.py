"""The fake farm: the RQDs of thousands of hosts in one process, with frames that take time and memory, and with faults.

Frames run for as long as a real farm's would, compressed: lognormal around the mean of their width (sim/farm.py). A
layer's environment says otherwise, so that scenarios need no other channel:

    SIM_RUN_S       seconds that its frames run, or a range as in 1-2.5
    SIM_RSS_KIB     memory that they use; more than is reserved ends them with status 33
    SIM_EXIT        status with which they end
    SIM_FAIL_FIRST  how many runs of a frame end with SIM_EXIT before one succeeds
    SIM_LICENSE     a seat that they need (behaviour `seats`); without one they end at once with status DENIED

sim/farm_process.py runs it in a process of its own and hands it commands (`obey`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import grpc
from opencue_proto import host_pb2, report_pb2, rqd_pb2

from launcher import wire
from launcher.rqd import HOST_KEY
from sim.fake_rqd import KIB_PER_GIB, Exit, FakeHost, FakeRqd, Fault
from sim.farm import FRAME_CLASSES
from sim.frame_log import write_foot, write_head

MEMORY_FAILURE = 33  # exit status, as RQD reports it
DENIED = 111  # exit status of a frame that got no licence
REPORT_TRIES = 4  # as stock RQD
SERVICE = "/rqd.RqdInterface/"
REPORTS = "/report.RqdReportInterface/"
# What launchers call, by path.
REQUESTS = {
    SERVICE + name: (name, getattr(rqd_pb2, request))
    for name, request in (
        ("LaunchFrame", "RqdStaticLaunchFrameRequest"),
        ("ReportStatus", "RqdStaticReportStatusRequest"),
        ("GetRunningFrameStatus", "RqdStaticGetRunningFrameStatusRequest"),
        ("KillRunningFrame", "RqdStaticKillRunningFrameRequest"),
        ("RestartRqdIdle", "RqdStaticRestartIdleRequest"),
        ("ShutdownRqdIdle", "RqdStaticShutdownIdleRequest"),
    )
}
LAUNCH = SERVICE + "LaunchFrame"
COMPLETION = REPORTS + "ReportRunningFrameCompletion"
TAKEN = rqd_pb2.RqdStaticLaunchFrameResponse().SerializeToString()
_MINUTES = sorted((kind.cores, kind.minutes) for kind in FRAME_CLASSES)


@dataclass(frozen=True)
class Behaviour:
    """How frames run and what goes wrong, farm-wide. Rates are shares of all completions, 0 to 1."""

    seed: int = 1
    compress: float = 60.0  # workload minutes become seconds at 60
    run_s: float = 0.0  # seconds that every frame runs; 0: by its width
    report_s: float = 30.0  # between a host's status reports; 0: none
    rss_low: float = 0.3  # frames use a share of their reservation between these two
    rss_high: float = 0.9
    oom: float = 0.0  # end with status 33
    fail: float = 0.0  # end with status 1
    lost: float = 0.0  # completion never reported
    late: float = 0.0  # completion reported `late_s` after it
    late_s: float = 5.0
    repeat: float = 0.0  # completion reported twice, the second `late_s` after the first
    seats: dict[str, int] = field(default_factory=dict)  # licence -> seats
    logs: bool = False  # frames leave logs as RQD writes them, as far as launchers read them


@dataclass(slots=True)
class Run:
    """A frame that runs: what it was told, what it uses (KiB), when it ends (monotonic) and how."""

    host: FakeHost
    frame: Any
    rss: int
    ends_at: float
    ending: Exit
    seat: str = ""


@dataclass
class Totals:
    """What has happened since the start. Core-seconds are of frames that ran on hosts, booked or not."""

    launched: int = 0
    refused: int = 0
    ended: int = 0  # frames that ended of themselves
    killed: int = 0
    vanished: int = 0  # runs that a crash of their host swallowed, those whose end it had not reported included
    reported: int = 0  # completions that were taken
    unreported: int = 0
    doubles: int = 0  # launches of a frame that ran already, on whichever host
    overbooked: int = 0  # launches that gave a host more cores than it has
    denied: int = 0
    core_seconds: float = 0.0
    peak_cores: int = 0


class Context:
    """What a handler written for grpcio is given."""

    def __init__(self, host: str) -> None:
        self._host = host

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((HOST_KEY, self._host),)

    async def abort(self, code: grpc.StatusCode, words: str) -> None:
        raise wire.CallError(code, words)


class FakeFarm(FakeRqd):
    """All hosts of a farm. One clock ends the frames: a task a frame would cost more than the frame."""

    def __init__(self, intake: str, behaviour: Behaviour, log: Path | None = None) -> None:
        super().__init__(intake=intake)
        self._wire = wire.Server(self._serve)
        self._caller = wire.Channel(intake)
        self.behaviour = behaviour
        self.totals = Totals()
        self.where: dict[str, Run] = {}  # frame id -> the run that was started last
        self.starts: Counter[str] = Counter()  # frame id -> runs
        self.leaks: dict[str, tuple[float, float]] = {}  # host -> KiB a second, since (monotonic)
        self.nimby: set[str] = set()
        self._random = Random(behaviour.seed)
        self._ends: list[tuple[float, int, Run]] = []
        self._number = 0
        self._cores = 0
        self._booked: Counter[str] = Counter()  # host -> core points of its runs
        self._used: Counter[str] = Counter()  # host -> KiB of its runs
        self._seats: Counter[str] = Counter()
        self._ticked_at = time.monotonic()
        self._began_at = self._ticked_at
        self._log = log.open("w") if log else None

    # Calls

    async def start(self, address: str = "127.0.0.1:0") -> str:
        """Serve; returns the target to dial."""
        await self._wire.start(address)
        self.port = self._wire.port
        return f"{address.rpartition(':')[0]}:{self.port}"

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._wire.stop()
        self._caller.close()

    def _serve(self, call: wire.Call) -> None:
        """A call from a launcher. A plain launch is answered here and now: most calls are one."""
        if call.path == LAUNCH:
            host = self.host(call.header(HOST_KEY))
            frame = rqd_pb2.RqdStaticLaunchFrameRequest.FromString(call.message).run_frame
            if host.fault is Fault.NONE and not host.restarting and frame.frame_id not in host.running:
                self.begin(host, frame)
                call.reply(TAKEN)
                return
        if call.path not in REQUESTS:
            raise wire.CallError(grpc.StatusCode.UNIMPLEMENTED, f"Method not found: {call.path}")
        self._spawn(self._answer(call))

    async def _answer(self, call: wire.Call) -> None:
        method, request = REQUESTS[call.path]
        try:
            answer = await getattr(self, method)(request.FromString(call.message), Context(call.header(HOST_KEY)))
        except wire.CallError as error:
            call.reply(error)
        else:
            call.reply(answer.SerializeToString())

    async def report_startup(self, host_name: str) -> None:
        host = self.host(host_name)
        report = report_pb2.BootReport(host=self._render_host(host), core_info=self._core_info(host))
        message = report_pb2.RqdReportRqdStartupRequest(boot_report=report)
        await self._caller.call(REPORTS + "ReportRqdStartup", message.SerializeToString(), 60)

    async def report_status(self, host_name: str) -> None:
        message = report_pb2.RqdReportStatusRequest(host_report=self.status_report(self.host(host_name)))
        await self._caller.call(REPORTS + "ReportStatus", message.SerializeToString(), 60)

    def report_to(self, intake: str) -> None:
        self._caller.close()
        self._caller = wire.Channel(intake)

    # Frames

    def begin(self, host: FakeHost, frame: Any) -> None:
        totals = self.totals
        now = time.monotonic()
        self._count_cores(now)
        totals.launched += 1
        totals.doubles += frame.frame_id in self.where
        self.starts[frame.frame_id] += 1
        run = self._plan(host, frame, now)
        host.running[frame.frame_id] = frame
        self.where[frame.frame_id] = run
        self._cores += frame.num_cores
        self._booked[host.name] += frame.num_cores
        self._used[host.name] += run.rss
        totals.overbooked += self._booked[host.name] > host.cores
        totals.peak_cores = max(totals.peak_cores, self._cores // 100)
        self._number += 1
        heapq.heappush(self._ends, (run.ends_at, self._number, run))
        if self.behaviour.logs:
            write_head(frame)
        self._record("start", run)

    def _plan(self, host: FakeHost, frame: Any, now: float) -> Run:
        """How long it runs, what it uses and how it ends."""
        behaviour, random = self.behaviour, self._random
        told = frame.environment
        reserved = int(told.get("CUE_MEMORY", 0)) or KIB_PER_GIB
        if "SIM_RUN_S" in told:
            low, _, high = told["SIM_RUN_S"].partition("-")
            seconds = random.uniform(float(low), float(high or low))
        elif behaviour.run_s:
            seconds = behaviour.run_s
        else:
            minutes = next((mean for cores, mean in _MINUTES if cores * 100 >= frame.num_cores), _MINUTES[-1][1])
            # sigma 0.5, and the shift that keeps the mean
            seconds = minutes * 60 / behaviour.compress * random.lognormvariate(-0.125, 0.5)
        rss = int(reserved * random.uniform(behaviour.rss_low, behaviour.rss_high))
        status = 0
        luck = random.random()
        if luck < behaviour.oom:
            rss, status = reserved + 1, MEMORY_FAILURE
        elif luck < behaviour.oom + behaviour.fail:
            status = 1
        if "SIM_EXIT" in told and self.starts[frame.frame_id] <= int(told.get("SIM_FAIL_FIRST", 1 << 30)):
            status = int(told["SIM_EXIT"])
        if "SIM_RSS_KIB" in told:
            rss = int(told["SIM_RSS_KIB"])
            if rss > reserved:
                # It grows until it hits the wall.
                seconds, status, rss = seconds * reserved / rss, MEMORY_FAILURE, reserved
        seat = told.get("SIM_LICENSE", "")
        if seat:
            if self._seats[seat] >= behaviour.seats.get(seat, 0):
                self.totals.denied += 1
                seat, status, seconds = "", DENIED, 0.05
            else:
                self._seats[seat] += 1
        return Run(host, frame, rss, now + seconds, Exit(status, 0, rss), seat)

    def _remove(self, run: Run) -> bool:
        """Take a run off its host; False when it is not there any more."""
        frame: Any = run.frame
        if frame.frame_id not in run.host.running or run.host.running[frame.frame_id] is not frame:
            return False
        self._count_cores(time.monotonic())
        del run.host.running[frame.frame_id]
        if self.where.get(frame.frame_id) is run:
            del self.where[frame.frame_id]
        self._cores -= frame.num_cores
        self._booked[run.host.name] -= frame.num_cores
        self._used[run.host.name] -= run.rss
        if run.seat:
            self._seats[run.seat] -= 1
        return True

    def _count_cores(self, now: float) -> None:
        self.totals.core_seconds += self._cores / 100 * (now - self._ticked_at)
        self._ticked_at = now

    async def run_clock(self) -> None:
        """End the frames whose time is over, for good. Frames of a host that hangs or is dead go on."""
        while True:
            now = time.monotonic()
            while self._ends and self._ends[0][0] <= now:
                _, _, run = heapq.heappop(self._ends)
                if self._remove(run):
                    self.totals.ended += 1
                    self._end(run, run.ending)
            await asyncio.sleep(0.01)

    def _end(self, run: Run, ending: Exit) -> None:
        """Report an ending, as faults allow."""
        self._record("end", run, ending)
        if self.behaviour.logs:
            write_foot(run.frame, ending)
        behaviour, random = self.behaviour, self._random
        luck = random.random()
        if luck < behaviour.lost:
            self.totals.unreported += 1
            return
        message = self._completion(run, ending)
        late = behaviour.late_s if luck < behaviour.lost + behaviour.late else 0.0
        client = self._caller.client
        if late or client is None or run.host.fault is not Fault.NONE:
            self._spawn(self._report(run.host, message, late, counted=True))
        else:
            sent = client.call(COMPLETION, message).future
            sent.add_done_callback(lambda done: self._reported(run.host, message, done))
        if random.random() < behaviour.repeat:
            self._spawn(self._report(run.host, message, late + behaviour.late_s, counted=False))

    def _reported(self, host: FakeHost, message: bytes, done: asyncio.Future[bytes]) -> None:
        """The first try's outcome; what was not taken is sent again."""
        if done.cancelled():
            return
        if done.exception() is None:
            self.totals.reported += 1
        else:
            self._spawn(self._report(host, message, 0.5, counted=True, tries=REPORT_TRIES - 1))

    def _completion(self, run: Run, ending: Exit) -> bytes:
        report = report_pb2.FrameCompleteReport(
            host=self._render_host(run.host), frame=self._info(run.frame, ending.max_rss), exit_status=ending.status,
            exit_signal=ending.signal, run_time=max(int(time.time() - run.frame.start_time / 1000), 0),
        )  # fmt: skip
        message = report_pb2.RqdReportRunningFrameCompletionRequest(frame_complete_report=report)
        return bytes(message.SerializeToString())

    async def _report(
        self, host: FakeHost, message: bytes, late_s: float, counted: bool, tries: int = REPORT_TRIES
    ) -> None:
        """Send a completion, up to four times as stock RQD does. A host that hangs sends once it is back; one that dies
        takes the report with it."""
        if late_s:
            await asyncio.sleep(late_s)
        taken = False
        for attempt in range(tries):
            while host.fault is Fault.HANG:  # noqa: ASYNC110 - rare, and faults have no events
                await asyncio.sleep(0.1)
            if host.fault is Fault.DEAD:
                self.totals.vanished += counted
                return
            try:
                await self._caller.call(COMPLETION, message, 30)
                taken = True
                break
            except grpc.RpcError:
                await asyncio.sleep(0.5 * 2**attempt)
        if counted:
            self.totals.reported += taken
            self.totals.unreported += not taken

    async def finish(self, host_name: str, frame_id: str, ending: Exit | None = None) -> None:
        """A kill from outside: KillRunningFrame comes here."""
        run = self.where.get(frame_id)
        if run is not None and run.host.name == host_name and self._remove(run):
            self.totals.killed += 1
            self._end(run, ending or Exit(1, 9, run.rss))

    async def _refuse(self, context: Any, words: str) -> None:  # type: ignore[override]
        self.totals.refused += 1
        await FakeRqd._refuse(context, words)

    # Hosts

    def crash(self, name: str) -> None:
        """The host goes away with all that ran on it, and nobody is told."""
        host = self.hosts[name]
        host.fault = Fault.DEAD
        for frame_id in list(host.running):
            run = self.where.get(frame_id)
            if run is not None and run.host is host and self._remove(run):
                self.totals.vanished += 1
        host.running.clear()

    async def back(self, name: str) -> None:
        """The host boots."""
        self.hosts[name].fault = Fault.NONE
        await self.report_startup(name)

    def _render_host(self, host: FakeHost) -> report_pb2.RenderHost:  # type: ignore[override]
        leak = 0.0
        if host.name in self.leaks:
            rate, since = self.leaks[host.name]
            leak = rate * (time.monotonic() - since)
        return report_pb2.RenderHost(
            name=host.name, num_procs=1, cores_per_proc=host.cores, total_mem=host.mem,
            free_mem=max(int(host.mem - self._used[host.name] - leak), 0),
            total_swap=KIB_PER_GIB, free_swap=KIB_PER_GIB, total_mcp=100 * KIB_PER_GIB, free_mcp=100 * KIB_PER_GIB,
            boot_time=int(self._boot_time), tags=host.tags, state=host_pb2.UP, attributes={"SP_OS": "linux"},
            num_gpus=host.gpus, total_gpu_mem=host.gpu_mem, free_gpu_mem=host.gpu_mem, facility="local",
            nimby_enabled=host.name in self.nimby, nimby_locked=host.name in self.nimby,
        )  # fmt: skip

    _boot_time = time.time() - 3600

    def status_report(self, host: FakeHost) -> report_pb2.HostReport:
        frames = []
        for frame in host.running.values():
            run = self.where.get(frame.frame_id)
            frames.append(self._info(frame, run.rss if run else KIB_PER_GIB))
        return report_pb2.HostReport(host=self._render_host(host), frames=frames, core_info=self._core_info(host))

    async def report_all(self) -> None:
        """Each host reports once an interval, spread over it; many at once when they are many. For good."""
        running: set[asyncio.Task[None]] = set()
        while True:
            every = self.behaviour.report_s
            began = time.monotonic()
            names = list(self.hosts) if every else []
            for number, name in enumerate(names):
                due = began + every * number / len(names)
                if due > time.monotonic():
                    await asyncio.sleep(due - time.monotonic())
                if self.hosts[name].fault not in (Fault.HANG, Fault.DEAD):
                    task = asyncio.ensure_future(self._report_one(name))
                    running.add(task)
                    task.add_done_callback(running.discard)
            await asyncio.sleep(max(began + every - time.monotonic(), 0.1))

    async def _report_one(self, name: str) -> None:
        with contextlib.suppress(grpc.RpcError):
            await self.report_status(name)

    # Commands

    async def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what the other end asks; raises KeyError or TypeError for what there is not."""
        names = command.get("hosts") or []
        match command["do"]:
            case "stats":
                pass
            case "behave":
                self.behaviour = replace(self.behaviour, **command["changes"])
                if "seed" in command["changes"]:
                    self._random = Random(self.behaviour.seed)
            case "fault":
                for name in names:
                    self.hosts[name].fault = Fault(command["fault"])
            case "crash":
                for name in names:
                    self.crash(name)
            case "back":
                await asyncio.gather(*(self.back(name) for name in names))
            case "boot":
                # Some at a time, as a farm that is switched on.
                every = list(self.hosts)
                for start in range(0, len(every), 100):
                    await asyncio.gather(*(self.report_startup(name) for name in every[start : start + 100]))
            case "report":
                await asyncio.gather(*(self._report_one(name) for name in names or self.hosts))
            case "nimby":
                (self.nimby.update if command["locked"] else self.nimby.difference_update)(names)
                await asyncio.gather(*(self._report_one(name) for name in names))
            case "leak":
                for name in names:
                    self.leaks[name] = (float(command["kib_per_s"]), time.monotonic())
            case "finish":
                # Everything that runs (of these hosts) ends now, as it would have.
                for run in list(self.where.values()):
                    if (not names or run.host.name in names) and self._remove(run):
                        self.totals.ended += 1
                        self._end(run, run.ending)
            case "running":
                return {"running": {frame: run.host.name for frame, run in self.where.items()}}
            case "starts":
                return {"starts": dict(self.starts)}
            case "intake":
                self.report_to(command["address"])
            case other:
                raise KeyError(f"no command {other}")
        self._count_cores(time.monotonic())
        return {
            **vars(self.totals), "running": len(self.where), "cores_running": self._cores // 100,
            "up_s": time.monotonic() - self._began_at, "cpu_s": time.process_time(),
        }  # fmt: skip

    def _record(self, what: str, run: Run, ending: Exit | None = None) -> None:
        if self._log:
            entry = {
                "at": time.time(), "what": what, "host": run.host.name, "frame": run.frame.frame_id,
                "proc": run.frame.resource_id, "layer": run.frame.layer_id, "cores": run.frame.num_cores,
            }  # fmt: skip
            if ending:
                entry["status"] = ending.status
            self._log.write(json.dumps(entry) + "\n")

    def close_log(self) -> None:
        if self._log:
            self._log.close()
