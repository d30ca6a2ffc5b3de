"""gRPC's unary calls, both ends, over http2.py: how launchers and RQDs talk.

grpcio's asyncio layer takes half a millisecond of processor for a call, more than all else that a launcher does for a
frame; this takes a tenth of that. It speaks to grpcio, tonic and their like at the other end. Not known here: streaming
calls (no interface of RQD has one) and compressed messages (nobody sends them unasked).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import grpc

from launcher import http2, log
from launcher.http2 import END_HEADERS, END_STREAM, GOAWAY, HEADERS, Broken, Stream, frame, literal

Code = grpc.StatusCode

CALLS_MAX = 500  # of a client at a time; grpcio's server cancels some of those that come in thousands
REFUSED_PAUSE_S = 0.05  # before a call is sent again that the server had no room for
_CODES = {str(code.value[0]): code for code in Code}
# What an answer that is not gRPC's means, by its HTTP status.
_HTTP_CODES = {
    "400": Code.INTERNAL, "401": Code.UNAUTHENTICATED, "403": Code.PERMISSION_DENIED, "404": Code.UNIMPLEMENTED,
    "429": Code.UNAVAILABLE, "502": Code.UNAVAILABLE, "503": Code.UNAVAILABLE, "504": Code.UNAVAILABLE,
}  # fmt: skip
_RESETS = {http2.REFUSED_STREAM: Code.UNAVAILABLE, http2.CANCEL: Code.CANCELLED}
_TYPE = literal("content-type", "application/grpc")
_BEGIN = b"\x88" + _TYPE  # :status 200
_GOOD = literal("grpc-status", "0")
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class CallError(grpc.RpcError):  # type: ignore[misc]
    """A call that failed, as callers of grpcio know it."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(f"{code.name}: {words}")
        self._code, self._words = code, words

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._words


def _message(parts: list[bytes]) -> bytes:
    """The one message of a unary call. Raises CallError."""
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) < 5 or len(data) != 5 + int.from_bytes(data[1:5], "big"):
        raise CallError(Code.INTERNAL, "not one whole message")
    if data[0]:
        raise CallError(Code.UNIMPLEMENTED, "compressed messages are not understood")
    return data[5:]


def _envelope(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


class Call:
    """A call that came in: what it asks, and where its answer goes."""

    __slots__ = ("_peer", "_stream", "message", "path")

    def __init__(self, peer: _ServerPeer, stream: Stream, message: bytes) -> None:
        self._peer = peer
        self._stream = stream
        self.message = message
        self.path = stream.headers.get(":path", "")

    def header(self, name: str) -> str:
        return self._stream.headers.get(name, "")

    @property
    def address(self) -> str:
        """The caller's network address; empty where the connection has none."""
        return self._peer.address

    def reply(self, answer: bytes | CallError) -> None:
        """Answer, now or later; a caller that has hung up hears nothing."""
        self._peer.reply(self._stream, answer)


Handler = Callable[[Call], None]


class _ServerPeer(http2.Connection):
    """One connection of a server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.message_max)
        self._server = server
        self._prefaced = False
        self._last = 0  # highest stream number seen
        self._leaving = False
        self.address = ""

    def connection_made(self, transport: Any) -> None:
        self._server.peers.add(self)
        self.address = str((transport.get_extra_info("peername") or [""])[0])
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.streams.clear()
        self._server.peers.discard(self)
        self._server.note_idle()

    # A caller that does not read its answers is read no further.
    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def _read(self) -> None:
        if not self._prefaced:
            have = bytes(self._in[: len(http2.PREFACE)])
            if not http2.PREFACE.startswith(have):
                raise Broken("not HTTP/2")
            if len(have) < len(http2.PREFACE):
                return
            del self._in[: len(http2.PREFACE)]
            self._prefaced = True
        super()._read()

    def leave(self) -> None:
        """Take no more calls; those that have come are answered."""
        self._leaving = True
        self.write(frame(GOAWAY, 0, 0, struct.pack(">II", self._last, http2.NO_ERROR)))

    def on_headers(self, number: int, headers: Mapping[str, str], over: bool) -> None:
        stream = self.streams.get(number)
        if stream is None:
            if number % 2 == 0 or number <= self._last:
                return  # of a call that is over
            if self._leaving or len(self.streams) >= http2.STREAMS_MAX:
                self.write(frame(http2.RST_STREAM, 0, number, struct.pack(">I", http2.REFUSED_STREAM)))
                return
            self._last = number
            stream = self.streams[number] = self.new_stream(number)
            stream.headers = headers
        if over:
            self.on_end(stream)

    def on_end(self, stream: Stream) -> None:
        try:
            call = Call(self, stream, _message(stream.parts))
            stream.parts.clear()
            self._server.handler(call)
        except CallError as error:
            self.reply(stream, error)
        except Exception as error:
            log.exception("call failed", error, path=stream.headers.get(":path"))
            self.reply(stream, CallError(Code.INTERNAL, f"{type(error).__name__}: {error}"))

    def on_too_large(self, stream: Stream) -> None:
        words = f"a message of more than {self.message_max} bytes"
        self.reply(stream, CallError(Code.RESOURCE_EXHAUSTED, words))

    def reply(self, stream: Stream, answer: bytes | CallError) -> None:
        number = stream.number
        if self.streams.get(number) is not stream:
            return
        if isinstance(answer, CallError):
            words = quote(answer.details().encode(), safe=_PRINTABLE)
            block = _BEGIN + literal("grpc-status", str(answer.code().value[0])) + literal("grpc-message", words)
            self.write(frame(HEADERS, END_HEADERS | END_STREAM, number, block))
            self.drop(number)
        else:
            self.write(frame(HEADERS, END_HEADERS, number, _BEGIN))
            self.send(stream, _envelope(answer), after=frame(HEADERS, END_HEADERS | END_STREAM, number, _GOOD))
        self._server.note_idle()


class Server:
    """Serves unary calls. The handler replies to each, at once or later; CallError raised by it is a reply too."""

    def __init__(self, handler: Handler, message_max: int = 4 << 20) -> None:
        self.handler = handler
        self.message_max = message_max
        self.peers: set[_ServerPeer] = set()
        self._idle: asyncio.Event | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, address: str, context: ssl.SSLContext | None = None) -> None:
        """Listen at host:port; [::] is every address. Several processes may share a port. Raises OSError."""
        host, port = endpoint(address)
        if context:
            context.set_alpn_protocols(["h2"])
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _ServerPeer(self), None if host == "::" else host, port, ssl=context, reuse_port=port != 0,
            backlog=1024,
        )  # fmt: skip
        self.port = int(self._server.sockets[0].getsockname()[1])

    def note_idle(self) -> None:
        """A call is over: who waits for all of them may go on."""
        if self._idle is not None and not any(peer.streams for peer in self.peers):
            self._idle.set()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more calls, let those under way be answered for the grace given, and close."""
        if self._server is None:
            return
        self._server.close()
        for peer in list(self.peers):
            peer.leave()
        if grace_s and any(peer.streams for peer in self.peers):
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
        for peer in list(self.peers):
            peer.close()
        await self._server.wait_closed()
        self._server = None


class _Sent(Stream):
    """A call that went out."""

    __slots__ = ("begin", "future")

    def __init__(self, begin: tuple[bytes, bytes]) -> None:
        super().__init__(0, 0)
        self.begin = begin  # headers and data
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def fail(self, code: grpc.StatusCode, words: str) -> None:
        if not self.future.done():
            self.future.set_exception(CallError(code, words))


class Client(http2.Connection):
    """One connection to a server; any number of calls at a time. See Channel."""

    def __init__(self, authority: str, message_max: int) -> None:
        super().__init__(message_max)
        self._authority = authority
        self._starts: dict[tuple[str, float], bytes] = {}
        self._next = 1
        self._held: deque[_Sent] = deque()  # calls that the server has no room for yet
        self.usable = True

    def connection_made(self, transport: Any) -> None:
        self.write(http2.PREFACE)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.usable = False
        self._fail([*self.streams.values(), *self._held], "connection lost")
        self.streams.clear()
        self._held.clear()

    @staticmethod
    def _fail(calls: list[Any], words: str) -> None:
        for call in calls:
            call.fail(Code.UNAVAILABLE, words)

    def call(self, path: str, message: bytes, timeout_s: float = 0.0, headers: bytes = b"") -> _Sent:
        """Send a call; its future gives the answer or raises CallError. The server is told of the timeout; minding it
        is the caller's (abandon). `headers` are made by `literal`."""
        start = self._starts.get((path, timeout_s))
        if start is None:
            limit = literal("grpc-timeout", f"{max(int(timeout_s * 1000), 1)}m") if timeout_s else b""
            start = self._starts[path, timeout_s] = (
                b"\x83\x86" + literal(":path", path) + literal(":authority", self._authority) + _TYPE
                + literal("te", "trailers") + limit
            )  # fmt: skip
        call = _Sent((start + headers, _envelope(message)))
        if not self.usable:
            call.fail(Code.UNAVAILABLE, "connection lost")
        elif len(self.streams) >= min(self.streams_max, CALLS_MAX):
            self._held.append(call)
        else:
            self._begin(call)
        return call

    def _begin(self, call: _Sent) -> None:
        call.number, self._next = self._next, self._next + 2
        call.window = self.stream_window
        headers, data = call.begin
        self.open(call, headers)
        self.send(call, data, END_STREAM)
        if self._next > http2.STREAM_MAX:
            self.leave()  # numbers are used up: the next call makes a new connection

    def abandon(self, call: _Sent) -> None:
        """Nobody waits for the call any more."""
        if call.number:
            self.reset(call, http2.CANCEL)
            self._go_on()
        else:
            with contextlib.suppress(ValueError):
                self._held.remove(call)

    def leave(self) -> None:
        """Begin no more calls here; close once those under way are over."""
        self.usable = False
        self._fail(list(self._held), "the server takes no more calls on this connection")
        self._held.clear()
        if not self.streams:
            self.close()

    def _go_on(self) -> None:
        """A call is over: there may be room for another, or nothing left to wait for."""
        if not self.usable:
            if not self.streams:
                self.close()
            return
        while self._held and len(self.streams) < min(self.streams_max, CALLS_MAX):
            self._begin(self._held.popleft())

    def on_headers(self, number: int, headers: Mapping[str, str], over: bool) -> None:
        call = self.streams.get(number)
        if call is None:
            return
        call.headers = {**call.headers, **headers}
        if over:
            self.on_end(call)

    def on_end(self, stream: Any) -> None:
        self.drop(stream.number)
        if not stream.future.done():
            self._answer(stream)
        self._go_on()

    @staticmethod
    def _answer(call: _Sent) -> None:
        headers = call.headers
        status = headers.get("grpc-status")
        if status == "0":
            try:
                call.future.set_result(_message(call.parts))
            except CallError as error:
                call.future.set_exception(error)
        elif status is None:
            http = headers.get(":status", "")
            call.fail(_HTTP_CODES.get(http, Code.UNKNOWN), f"an answer that is not gRPC's (HTTP status {http})")
        else:
            call.fail(_CODES.get(status, Code.UNKNOWN), unquote(headers.get("grpc-message", "")))

    def on_too_large(self, stream: Any) -> None:
        self.reset(stream, http2.CANCEL)
        stream.fail(Code.RESOURCE_EXHAUSTED, f"an answer of more than {self.message_max} bytes")
        self._go_on()

    def on_reset(self, stream: Any, code: int) -> None:
        if code == http2.REFUSED_STREAM and self.usable and not stream.future.done():
            # It was not looked at: the server still counts calls that are over here.
            stream.number = 0
            self._held.append(stream)
            asyncio.get_running_loop().call_later(REFUSED_PAUSE_S, self._go_on)
            return
        stream.fail(_RESETS.get(code, Code.INTERNAL), f"call reset with error {code}")
        self._go_on()

    def on_goaway(self, last: int) -> None:
        for number in [number for number in self.streams if number > last]:
            self._fail([self.drop(number)], "the server leaves, and has not taken the call")
        self.leave()


class Channel:
    """Calls to one address over one connection, which is made when needed and again after it broke."""

    def __init__(self, target: str, message_max: int = 64 << 20, silence_s: float = 20.0) -> None:
        """`target` is host:port. Data that the other machine leaves unacknowledged for `silence_s` end a connection."""
        self._target = target
        self._message_max = message_max
        self._silence_s = silence_s
        self._client: Client | None = None
        self._attempt: asyncio.Task[Client] | None = None

    @property
    def client(self) -> Client | None:
        """The connection, if it stands."""
        return self._client if self._client is not None and self._client.usable else None

    async def connect(self, timeout_s: float) -> Client:
        """The connection, made if there is none; callers at the same time share one attempt. Raises CallError."""
        if (client := self.client) is not None:
            return client
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._connect(timeout_s), name=f"connect {self._target}")
            self._attempt.add_done_callback(self._attempted)
        return await asyncio.shield(self._attempt)

    def _attempted(self, attempt: asyncio.Task[Client]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()  # seen, even if nobody waits for it any more

    async def _connect(self, timeout_s: float) -> Client:
        client: Client | None = None
        try:
            host, port = endpoint(self._target)
            async with asyncio.timeout(timeout_s):
                transport, client = await asyncio.get_running_loop().create_connection(
                    lambda: Client(self._target, self._message_max), host, port
                )
                if hasattr(socket, "TCP_USER_TIMEOUT") and (sock := transport.get_extra_info("socket")):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._silence_s * 1000))
                await asyncio.shield(client.settled)
        except (OSError, ValueError, UnicodeError) as error:  # TimeoutError is an OSError
            if client is not None:
                client.close()
            words = str(error) or "no answer in time"
            raise CallError(Code.UNAVAILABLE, f"no connection to {self._target}: {words}") from None
        self._client = client
        return client

    async def call(self, path: str, message: bytes, timeout_s: float, headers: bytes = b"") -> bytes:
        """The answer. Raises CallError."""
        try:
            async with asyncio.timeout(timeout_s):
                client = self.client or await self.connect(timeout_s)
                call = client.call(path, message, timeout_s, headers)
                try:
                    return await call.future
                finally:
                    if call.future.cancelled():
                        client.abandon(call)
        except TimeoutError:
            raise CallError(Code.DEADLINE_EXCEEDED, "no answer in time") from None

    def leave(self) -> None:
        """Begin no more calls; the connection closes once those under way are over."""
        if self._client is not None:
            self._client.leave()

    def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
        if self._client is not None:
            self._client.close()


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; brackets around an IPv6 address go."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
