"""Calls to RQD, and what their answers mean. The border at which gRPC errors become outcomes.

Stock RQD's GetRunningFrameStatus reads a field that its message does not have and so fails for every frame; its
ReportStatus answers with all running frames of the host, one call for any number of questions. That is asked first.
"""

from __future__ import annotations

import enum
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opencue_proto import rqd_pb2

from launcher.http2 import literal
from launcher.wire import CallError, Channel, Code

# The host's own name goes along, for a gateway that stands for several hosts; RQD does not mind it.
HOST_KEY = "maestro-host"
_SERVICE = "/rqd.RqdInterface/"
# Answers after which RQD may or may not have acted on the call.
_UNSURE = {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.INTERNAL, Code.DATA_LOSS}


class Sent(enum.Enum):
    """What is known after a launch was sent."""

    TAKEN = "taken"  # RQD answered that it starts the frame
    DUPLICATE = "duplicate"  # RQD runs this frame already, for us or for another booking
    REFUSED = "refused"  # RQD answered that it does not start it
    UNSURE = "unsure"  # sent, and no answer that tells


class Silent(Exception):
    """The host gave no usable answer; its text says why."""


@dataclass
class _Kept:
    channel: Channel
    used_at: float


class Rqds:
    """The farm's RQDs: cached channels, least recently used ones closed, idle ones expired."""

    def __init__(
        self, *, port: int = 8444, dials: dict[str, str] | None = None, deadline_s: float = 10.0,
        channels_max: int = 2000, channel_idle_s: float = 300.0,
    ) -> None:  # fmt: skip
        self._port = port
        self._dials = dials or {}
        self._deadline = deadline_s
        self._max = channels_max
        self._idle = channel_idle_s
        self._channels: OrderedDict[str, _Kept] = OrderedDict()

    def target(self, host_name: str, dial: str | None) -> str:
        """Where a host's RQD is dialled: the file's word, the database's, else its name and the usual port."""
        return self._dials.get(host_name) or dial or f"{host_name}:{self._port}"

    def _get(self, target: str) -> Channel:
        now = time.monotonic()
        found = self._channels.get(target)
        if found is None:
            found = self._channels[target] = _Kept(Channel(target, silence_s=2 * self._deadline), now)
            self._trim(now)
        found.used_at = now
        self._channels.move_to_end(target)
        return found.channel

    def _trim(self, now: float) -> None:
        """Close channels that are too many or too long unused; calls still running on one are let finish."""
        while self._channels:
            oldest = next(iter(self._channels.values()))
            if len(self._channels) <= self._max and now - oldest.used_at <= self._idle:
                return
            _, gone = self._channels.popitem(last=False)
            gone.channel.leave()

    def close(self) -> None:
        for kept in self._channels.values():
            kept.channel.close()
        self._channels.clear()

    async def connect(self, target: str) -> bool:
        """Whether there is a connection, tried for up to the deadline. Quick when there is one already."""
        try:
            await self._get(target).connect(self._deadline)
        except CallError:
            return False
        return True

    async def _call(self, host_name: str, target: str, method: str, request: Any, answer: Any = None) -> Any:
        """The answer to a call, a message of type `answer` where its content matters. Raises CallError."""
        data = await self._get(target).call(
            _SERVICE + method, request.SerializeToString(), self._deadline, literal(HOST_KEY, host_name)
        )
        try:
            return answer.FromString(data) if answer else None
        except DecodeError as error:
            raise CallError(Code.INTERNAL, f"an answer that cannot be read: {error}") from None

    async def launch(self, host_name: str, target: str, frame: rqd_pb2.RunFrame) -> tuple[Sent, str]:
        """Send one launch over a connection that stands (see connect): what is known, and RQD's words."""
        try:
            await self._call(host_name, target, "LaunchFrame", rqd_pb2.RqdStaticLaunchFrameRequest(run_frame=frame))
        except CallError as error:
            return _meaning(error)
        return Sent.TAKEN, ""

    async def running(self, host_name: str, target: str, frames: Iterable[str]) -> dict[str, str]:
        """Frame id -> resource id of what the host runs, of the frames asked for. Raises Silent."""
        try:
            answer = await self._call(
                host_name, target, "ReportStatus", rqd_pb2.RqdStaticReportStatusRequest(),
                rqd_pb2.RqdStaticReportStatusResponse,
            )  # fmt: skip
            wanted = set(frames)
            return {f.frame_id: f.resource_id for f in answer.host_report.frames if f.frame_id in wanted}
        except CallError as error:
            if error.code() is not Code.UNIMPLEMENTED:
                raise Silent(_words(error)) from None
        found = {}
        for frame in frames:
            request = rqd_pb2.RqdStaticGetRunningFrameStatusRequest(frame_id=frame)
            try:
                one = await self._call(
                    host_name, target, "GetRunningFrameStatus", request,
                    rqd_pb2.RqdStaticGetRunningFrameStatusResponse,
                )  # fmt: skip
                found[frame] = one.running_frame_info.resource_id
            except CallError as error:
                if error.code() is not Code.NOT_FOUND:
                    raise Silent(_words(error)) from None
        return found

    async def kill(self, host_name: str, target: str, frame_id: str, message: str) -> None:
        """Kill a frame; one that the host does not run is killed already. Raises Silent."""
        request = rqd_pb2.RqdStaticKillRunningFrameRequest(frame_id=frame_id, message=message)
        try:
            await self._call(host_name, target, "KillRunningFrame", request)
        except CallError as error:
            if error.code() is not Code.NOT_FOUND:
                raise Silent(_words(error)) from None

    async def restart_idle(self, host_name: str, target: str) -> None:
        """Have RQD restart once it is idle. Raises Silent.

        Stock RQD cannot restart itself; it can leave when idle, and its supervisor starts it again. When it is idle
        already it leaves before it answers, so a connection that breaks is the answer.
        """
        try:
            await self._call(host_name, target, "RestartRqdIdle", rqd_pb2.RqdStaticRestartIdleRequest())
            return
        except CallError as error:
            if error.code() is not Code.UNIMPLEMENTED:
                raise Silent(_words(error)) from None
        try:
            await self._call(host_name, target, "ShutdownRqdIdle", rqd_pb2.RqdStaticShutdownIdleRequest())
        except CallError as error:
            if error.code() is not Code.UNAVAILABLE:
                raise Silent(_words(error)) from None


def _meaning(error: CallError) -> tuple[Sent, str]:
    """A failed launch's meaning. RQD's own refusals arrive as UNKNOWN with the exception's text."""
    code, words = error.code(), _words(error)
    details = error.details()
    if code is Code.ALREADY_EXISTS or "already running" in details:
        return Sent.DUPLICATE, words
    if code in _UNSURE or (code is Code.UNKNOWN and not details.startswith("Exception calling application")):
        return Sent.UNSURE, words
    return Sent.REFUSED, words


def _words(error: CallError) -> str:
    return f"{error.code().name}: {error.details().strip()}"[:500]
