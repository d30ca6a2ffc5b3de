"""Calls to RQD, and what their answers mean. The border at which gRPC errors become outcomes.

Stock RQD's GetRunningFrameStatus reads a field that its message does not have and so fails for every frame; its
ReportStatus answers with all running frames of the host, one call for any number of questions. That is asked first.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from opencue_proto import rqd_pb2, rqd_pb2_grpc

Code = grpc.StatusCode

# The host's own name goes along, for a gateway that stands for several hosts; RQD does not mind it.
HOST_KEY = "maestro-host"
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),
]
# Answers after which RQD may or may not have acted on the call.
_UNSURE = {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.INTERNAL, Code.DATA_LOSS}


class Sent(enum.Enum):
    """What is known after a launch was sent."""

    TAKEN = "taken"  # RQD answered that it starts the frame
    DUPLICATE = "duplicate"  # RQD runs this frame already, for us or for another booking
    REFUSED = "refused"  # RQD answered that it does not start it
    NOT_SENT = "not sent"  # no connection came about, so RQD cannot have it
    UNSURE = "unsure"  # sent, and no answer that tells


class Silent(Exception):
    """The host gave no usable answer; its text says why."""


@dataclass
class _Channel:
    channel: Any
    stub: Any
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
        self._channels: OrderedDict[str, _Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def target(self, host_name: str, dial: str | None) -> str:
        """Where a host's RQD is dialled: the file's word, the database's, else its name and the usual port."""
        return self._dials.get(host_name) or dial or f"{host_name}:{self._port}"

    def _get(self, target: str) -> _Channel:
        now = time.monotonic()
        found = self._channels.get(target)
        if found is None:
            channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
            found = _Channel(channel, rqd_pb2_grpc.RqdInterfaceStub(channel), now)
            self._channels[target] = found
            self._trim(now)
        found.used_at = now
        self._channels.move_to_end(target)
        return found

    def _trim(self, now: float) -> None:
        """Close channels that are too many or too long unused; calls still running on one are let finish."""
        while self._channels:
            oldest = next(iter(self._channels.values()))
            if len(self._channels) <= self._max and now - oldest.used_at <= self._idle:
                return
            _, gone = self._channels.popitem(last=False)
            task = asyncio.ensure_future(gone.channel.close(grace=self._deadline))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        channels = [found.channel for found in self._channels.values()]
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing, return_exceptions=True)

    async def connect(self, target: str) -> bool:
        """Whether there is a connection, tried for up to the deadline. Quick when there is one already."""
        channel = self._get(target).channel
        state = channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        tried = False
        try:
            async with asyncio.timeout(self._deadline):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.SHUTDOWN:
                        return False
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and tried:
                        return False
                    tried = tried or state is grpc.ChannelConnectivity.CONNECTING
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return True

    async def launch(self, host_name: str, target: str, frame: rqd_pb2.RunFrame) -> tuple[Sent, str]:
        """Send one launch over a connection that stands (see connect): what is known, and RQD's words."""
        try:
            await self._get(target).stub.LaunchFrame(
                rqd_pb2.RqdStaticLaunchFrameRequest(run_frame=frame),
                timeout=self._deadline, metadata=((HOST_KEY, host_name),),
            )  # fmt: skip
        except grpc.RpcError as error:
            return _meaning(error)
        return Sent.TAKEN, ""

    async def running(self, host_name: str, target: str, frames: Iterable[str]) -> dict[str, str]:
        """Frame id -> resource id of what the host runs, of the frames asked for. Raises Silent."""
        stub = self._get(target).stub
        meta = ((HOST_KEY, host_name),)
        try:
            answer = await stub.ReportStatus(
                rqd_pb2.RqdStaticReportStatusRequest(), timeout=self._deadline, metadata=meta
            )
            wanted = set(frames)
            return {f.frame_id: f.resource_id for f in answer.host_report.frames if f.frame_id in wanted}
        except grpc.RpcError as error:
            if error.code() is not Code.UNIMPLEMENTED:
                raise Silent(_words(error)) from None
        found = {}
        for frame in frames:
            try:
                one = await stub.GetRunningFrameStatus(
                    rqd_pb2.RqdStaticGetRunningFrameStatusRequest(frame_id=frame), timeout=self._deadline, metadata=meta
                )
                found[frame] = one.running_frame_info.resource_id
            except grpc.RpcError as error:
                if error.code() is not Code.NOT_FOUND:
                    raise Silent(_words(error)) from None
        return found

    async def kill(self, host_name: str, target: str, frame_id: str, message: str) -> None:
        """Kill a frame; one that the host does not run is killed already. Raises Silent."""
        try:
            await self._get(target).stub.KillRunningFrame(
                rqd_pb2.RqdStaticKillRunningFrameRequest(frame_id=frame_id, message=message),
                timeout=self._deadline, metadata=((HOST_KEY, host_name),),
            )  # fmt: skip
        except grpc.RpcError as error:
            if error.code() is not Code.NOT_FOUND:
                raise Silent(_words(error)) from None

    async def restart_idle(self, host_name: str, target: str) -> None:
        """Have RQD restart once it is idle. Raises Silent.

        Stock RQD cannot restart itself; it can leave when idle, and its supervisor starts it again. When it is idle
        already it leaves before it answers, so a connection that breaks is the answer.
        """
        stub = self._get(target).stub
        meta = ((HOST_KEY, host_name),)
        try:
            await stub.RestartRqdIdle(rqd_pb2.RqdStaticRestartIdleRequest(), timeout=self._deadline, metadata=meta)
            return
        except grpc.RpcError as error:
            if error.code() is not Code.UNIMPLEMENTED:
                raise Silent(_words(error)) from None
        try:
            await stub.ShutdownRqdIdle(rqd_pb2.RqdStaticShutdownIdleRequest(), timeout=self._deadline, metadata=meta)
        except grpc.RpcError as error:
            if error.code() is not Code.UNAVAILABLE:
                raise Silent(_words(error)) from None


def _meaning(error: grpc.RpcError) -> tuple[Sent, str]:
    """A failed launch's meaning. RQD's own refusals arrive as UNKNOWN with the exception's text."""
    code, words = error.code(), _words(error)
    details = error.details() or ""
    if code is Code.ALREADY_EXISTS or "already running" in details:
        return Sent.DUPLICATE, words
    if code in _UNSURE or (code is Code.UNKNOWN and not details.startswith("Exception calling application")):
        return Sent.UNSURE, words
    return Sent.REFUSED, words


def _words(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {(error.details() or '').strip()}"[:500]
