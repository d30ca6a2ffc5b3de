"""Fake RQDs behind a network that loses and repeats messages, whose frames write logs as stock RQD's do.

A call is two messages, and each may be lost: the request, and then nothing happens; or the answer, and then the caller
does not know that it did. A repeated launch arrives twice at once; a repeated report comes again a while later.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import grpc
from opencue_proto import report_pb2

from sim.fake_rqd import Exit, FakeHost, FakeRqd
from tests.launcher.test_salvage import RULE

TRIES = 4  # as stock RQD, and only while nobody answers
RUN_S = (0.2, 1.0)  # frames run between these
REPEAT_AFTER_S = 2.0


class _Nobody(Exception):
    """A repeated call's answer, which nobody hears."""


class _Deaf:
    def __init__(self, context: Any) -> None:
        self.invocation_metadata = context.invocation_metadata

    async def abort(self, *_: object) -> None:
        raise _Nobody


class LossyRqd(FakeRqd):
    """Counts what must hold: `starts` and `successes` by frame id, `overlaps` of a frame that ran already."""

    def __init__(self, seed: int, drop: float = 0.05, repeat: float = 0.05) -> None:
        super().__init__()
        self._random = Random(seed)
        self.drop = drop
        self.repeat = repeat
        self.starts: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self.lost: Counter[str] = Counter()  # messages by what they were
        self._where: dict[str, str] = {}
        self._stubs: list[Any] = []

    def report_to_any(self, intakes: list[str]) -> None:
        """Send each report to one of these intakes, as RQDs do that know several Cuebots."""
        self._stubs = []
        for intake in intakes:
            self.report_to(intake)
            self._stubs.append(super()._reports())

    def _reports(self) -> Any:
        return self._random.choice(self._stubs)

    # The network

    def _loses(self, what: str) -> bool:
        if self._random.random() < self.drop:
            self.lost[what] += 1
            return True
        return False

    async def _over_the_network(self, what: str, method: Any, request: Any, context: Any) -> Any:
        never = asyncio.Event()
        if self._loses(f"{what} request"):
            await never.wait()
        if self._random.random() < self.repeat:
            self._spawn(self._again(method, request, context))
        answer = await method(request, context)
        if self._loses(f"{what} answer"):
            await never.wait()
        return answer

    @staticmethod
    async def _again(method: Any, request: Any, context: Any) -> None:
        try:
            await method(request, _Deaf(context))
        except _Nobody:
            return

    async def LaunchFrame(self, request: Any, context: Any) -> Any:
        return await self._over_the_network("launch", super().LaunchFrame, request, context)

    async def ReportStatus(self, request: Any, context: Any) -> Any:
        return await self._over_the_network("question", super().ReportStatus, request, context)

    async def KillRunningFrame(self, request: Any, context: Any) -> Any:
        return await self._over_the_network("kill", super().KillRunningFrame, request, context)

    async def _deliver(self, call: Any, request: Any, what: str) -> None:
        """Send a report; lost ones are not sent again, for the sender does not know."""
        for attempt in range(TRIES):
            if self._loses(what):
                return
            try:
                await call(request, timeout=10)
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return
                await asyncio.sleep(0.1 * 2**attempt)
        if self._random.random() < self.repeat:
            await asyncio.sleep(self._random.random() * REPEAT_AFTER_S)
            try:
                await call(request, timeout=10)
            except grpc.aio.AioRpcError:
                return

    async def report_status(self, host_name: str) -> None:
        request = report_pb2.RqdReportStatusRequest(host_report=self.status_report(self.host(host_name)))
        await self._deliver(self._reports().ReportStatus, request, "status")

    # Frames

    def begin(self, host: FakeHost, frame: Any) -> None:
        if frame.frame_id in self._where:
            self.overlaps.append(frame.frame_name)
        self._where[frame.frame_id] = host.name
        self.starts[frame.frame_id] += 1
        self._write_head(frame)
        super().begin(host, frame)
        self._spawn(self._run(host, frame, self._random.uniform(*RUN_S)))

    async def finish(self, host_name: str, frame_id: str, ending: Exit | None = None) -> None:
        host = self.hosts[host_name]
        ending = ending or Exit()
        frame = host.running[frame_id]
        self._write_foot(frame, ending)
        del host.running[frame_id]
        del self._where[frame_id]
        self.successes[frame_id] += ending.status == 0
        self._note()
        report = report_pb2.FrameCompleteReport(
            host=self._render_host(host), frame=self._info(frame, ending.max_rss), exit_status=ending.status,
            exit_signal=ending.signal, run_time=max(int(time.time() - frame.start_time / 1000), 0),
        )  # fmt: skip
        request = report_pb2.RqdReportRunningFrameCompletionRequest(frame_complete_report=report)
        self._spawn(self._deliver(self._reports().ReportRunningFrameCompletion, request, "completion"))

    @staticmethod
    def _log(frame: Any) -> Path:
        return Path(frame.log_dir) / f"{frame.job_name}.{frame.frame_name}.rqlog"

    def _write_head(self, frame: Any) -> None:
        path = self._log(frame)
        path.parent.mkdir(parents=True, exist_ok=True)
        number = 1
        while path.exists() and (older := path.with_name(f"{path.name}.{number}")).exists():
            number += 1
        if path.exists():
            path.rename(older)
        lines = [RULE, f"RenderQ JobSpec      {time.ctime()} \n", f"{'command':<21}{frame.command}"]
        lines += [f"{'env':<21}{name}={value}" for name, value in sorted(frame.environment.items())]
        path.write_text("\n".join([*lines, RULE, ""]))

    def _write_foot(self, frame: Any, ending: Exit) -> None:
        started = frame.start_time / 1000
        lines = [
            "", RULE, "RenderQ Job Complete\n", f"{'exitStatus':<20}{ending.status}",
            f"{'exitSignal':<20}{ending.signal}", f"{'startTime':<20}{time.ctime(started)}",
            f"{'endTime':<20}{time.ctime()}", f"{'maxrss':<20}{ending.max_rss}", f"{'maxUsedGpuMemory':<20}0", RULE, "",
        ]  # fmt: skip
        with self._log(frame).open("a") as log:
            log.write("\n".join(lines))
