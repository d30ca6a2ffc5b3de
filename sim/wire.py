"""gRPC's unary calls over HTTP/2, both ends, as little of it as the fake farm needs.

grpcio takes as much processor time for a call as the whole rest of a frame's life does. A farm's hosts have processors
of their own, so on one machine the fake ones must cost next to nothing, else the benchmark measures them. This speaks
to grpcio on the other end: no TLS, no compression, no streaming calls. Header strings in Huffman code are refused:
grpcio sends none.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE_BYTES = 4096  # of the header table, HTTP/2's default
WINDOW = 65535  # HTTP/2's default
WINDOW_WANTED = 1 << 30
FRAME_MAX = 16384  # HTTP/2's default; nothing longer is sent
CALLS_MAX = 500  # of a connection at a time; grpcio's server cancels some of those that come in thousands
_MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 3, 4

# Names (and values) 1 to 61 that every connection knows from the start.
_STATIC = """
:authority| :method|GET :method|POST :path|/ :path|/index.html :scheme|http :scheme|https :status|200 :status|204
:status|206 :status|304 :status|400 :status|404 :status|500 accept-charset| accept-encoding|gzip,deflate
accept-language| accept-ranges| accept| access-control-allow-origin| age| allow| authorization| cache-control|
content-disposition| content-encoding| content-language| content-length| content-location| content-range|
content-type| cookie| date| etag| expect| expires| from| host| if-match| if-modified-since| if-none-match| if-range|
if-unmodified-since| last-modified| link| location| max-forwards| proxy-authenticate| proxy-authorization| range|
referer| refresh| retry-after| server| set-cookie| strict-transport-security| transfer-encoding| user-agent| vary|
via| www-authenticate|
"""
STATIC = [(name, value) for name, _, value in (entry.partition("|") for entry in _STATIC.split())]


class Broken(Exception):
    """The other end does not speak what is understood here."""


class CallError(grpc.RpcError):  # type: ignore[misc]
    """A call that failed, as callers of grpcio know it."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(f"{code.name}: {words}")
        self._code, self._words = code, words

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._words


class HeaderTable:
    """The decoder of one direction's headers (HPACK)."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, str]] = deque()
        self._size = 0
        self._most = TABLE_BYTES

    def decode(self, block: bytes) -> dict[str, str]:
        """Name -> value; of a name that comes twice the last counts."""
        found: dict[str, str] = {}
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                self._most, at = _integer(block, at, 5)
                self._evict()
                continue
            else:
                keep = bool(first & 0x40)
                index, at = _integer(block, at, 6 if keep else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                if keep:
                    self._recent.appendleft((name, value))
                    self._size += len(name) + len(value) + 32
                    self._evict()
            found[name] = value
        return found

    def _entry(self, index: int) -> tuple[str, str]:
        try:
            return STATIC[index - 1] if index <= len(STATIC) else self._recent[index - len(STATIC) - 1]
        except IndexError:
            raise Broken(f"header {index} was never defined") from None

    def _evict(self) -> None:
        while self._size > self._most:
            name, value = self._recent.pop()
            self._size -= len(name) + len(value) + 32


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    if block[at] & 0x80:
        raise Broken("a header in Huffman code")
    length, at = _integer(block, at, 7)
    return block[at : at + length].decode("latin-1"), at + length


def literal(name: str, value: str) -> bytes:
    """A header that is not to be remembered. Name and value are shorter than 127 bytes, or the value is longer."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode("latin-1")
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, out = len(data) - 127, [127]
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes((*out, rest)) + data


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


_TYPE = literal("content-type", "application/grpc")
_BEGIN = b"\x88" + _TYPE
_GOOD = literal("grpc-status", "0")


class Peer(asyncio.Protocol):
    """What both ends share: frames, headers, settings, windows. One write for all that one read gave rise to."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._in = bytearray()
        self._out: list[bytes] = []
        self._reading = False
        self._headers = HeaderTable()
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags: headers that go on in the next frame
        self._taken = 0  # bytes that the other end's window has to get back
        self._window = WINDOW  # what may be sent on the connection
        self._stream_window = WINDOW  # what may be sent on a new stream
        self._waiting: deque[tuple[int, bytes, bytes]] = deque()  # stream, data, what follows it
        self.streams_max = CALLS_MAX

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send(
            frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, WINDOW_WANTED))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_WANTED))
        )

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        if not self._reading:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _send_data(self, stream: int, data: bytes, flags: int, after: bytes = b"") -> None:
        """A message, as soon as the other end's windows have room for it."""
        parts = [data[start : start + FRAME_MAX] for start in range(0, len(data), FRAME_MAX)]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            whole = frame(DATA, flags if last else 0, stream, part)
            self._waiting.append((stream, whole, after if last else b""))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._window >= len(self._waiting[0][1]):
            _, whole, after = self._waiting.popleft()
            self._window -= len(whole) - 9
            self._send(whole + after)

    def data_received(self, data: bytes) -> None:
        self._in += data
        self._reading = True
        try:
            self._read()
        except (Broken, IndexError) as error:
            self._out.append(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 1) + str(error).encode()))
            self._flush()
            self._transport.close()
        finally:
            self._reading = False
        if self._taken > 1 << 20:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._taken)))
            self._taken = 0
        self._flush()

    def _read(self) -> None:
        have, at = self._in, 0
        while len(have) - at >= 9:
            first, flags, stream = struct.unpack_from(">IBI", have, at)
            end = at + 9 + (first >> 8)
            if len(have) < end:
                break
            self._frame(first & 0xFF, flags, stream & 0x7FFFFFFF, bytes(have[at + 9 : end]))
            at = end
        del have[:at]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._taken += len(payload)
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            self._on_data(stream, payload, bool(flags & END_STREAM))
        elif kind == HEADERS:
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            if flags & PRIORITY:
                payload = payload[5:]
            if flags & END_HEADERS:
                self._on_headers(stream, self._headers.decode(payload), bool(flags & END_STREAM))
            else:
                self._block = (stream, flags, bytearray(payload))
        elif kind == CONTINUATION and self._block:
            begun, first_flags, block = self._block
            block += payload
            if flags & END_HEADERS:
                self._block = None
                self._on_headers(begun, self._headers.decode(bytes(block)), bool(first_flags & END_STREAM))
        elif kind == SETTINGS and not flags & ACK:
            for place in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, place)
                if name == _MAX_CONCURRENT_STREAMS:
                    self.streams_max = min(self.streams_max, value)
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            # Messages here are smaller than any stream's window; the connection's is what fills up.
            if stream == 0:
                self._window += struct.unpack(">I", payload)[0]
                self._send_waiting()
        elif kind == RST_STREAM:
            self._on_reset(stream)

    def _on_headers(self, stream: int, headers: dict[str, str], over: bool) -> None:
        raise NotImplementedError

    def _on_data(self, stream: int, data: bytes, over: bool) -> None:
        raise NotImplementedError

    def _on_reset(self, stream: int) -> None:
        raise NotImplementedError


def _message(data: bytes) -> bytes:
    """The one message of a unary call, without its length."""
    if len(data) < 5 or data[0] or len(data) != 5 + int.from_bytes(data[1:5], "big"):
        raise Broken("not one plain message")
    return data[5:]


def _envelope(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


Reply = Callable[[bytes | CallError], None]
Handler = Callable[[dict[str, str], bytes, Reply], None]


class ServerPeer(Peer):
    """One connection of a server. The handler gets headers, message and a function to reply with, now or later."""

    def __init__(self, handler: Handler, peers: set[ServerPeer]) -> None:
        super().__init__()
        self._handler = handler
        self._peers = peers
        self._prefaced = False
        self._calls: dict[int, tuple[dict[str, str], bytes]] = {}

    def connection_made(self, transport: Any) -> None:
        self._peers.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        self._calls.clear()

    def close(self) -> None:
        self._transport.close()

    def _read(self) -> None:
        if not self._prefaced:
            if len(self._in) < len(PREFACE):
                return
            if not self._in.startswith(PREFACE):
                raise Broken("not HTTP/2")
            del self._in[: len(PREFACE)]
            self._prefaced = True
        super()._read()

    def _on_headers(self, stream: int, headers: dict[str, str], over: bool) -> None:
        self._calls[stream] = (headers, b"")

    def _on_data(self, stream: int, data: bytes, over: bool) -> None:
        if stream not in self._calls:
            return
        headers, before = self._calls[stream]
        data = before + data if before else data
        if not over:
            self._calls[stream] = (headers, data)
            return

        def reply(answer: bytes | CallError) -> None:
            if self._calls.pop(stream, None) is not None:
                self._reply(stream, answer)

        self._handler(headers, _message(data), reply)

    def _reply(self, stream: int, answer: bytes | CallError) -> None:
        if isinstance(answer, CallError):
            words = quote(answer.details().encode(), safe=" !#$&'()*+,/:;=?@[]-._~\"<>\\^`{|}")
            block = _BEGIN + literal("grpc-status", str(answer.code().value[0])) + literal("grpc-message", words)
            self._send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
            return
        after = frame(HEADERS, END_HEADERS | END_STREAM, stream, _GOOD)
        self._send(frame(HEADERS, END_HEADERS, stream, _BEGIN))
        self._send_data(stream, _envelope(answer), 0, after)

    def _on_reset(self, stream: int) -> None:
        self._calls.pop(stream, None)


class Client(Peer):
    """One connection to a server; any number of calls at a time. See `connect`."""

    def __init__(self, authority: str) -> None:
        super().__init__()
        self._authority = authority
        self._blocks: dict[str, bytes] = {}
        self._next = 1
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._answers: dict[int, bytes] = {}
        self._held: deque[tuple[str, bytes, asyncio.Future[bytes]]] = deque()
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        transport.write(PREFACE)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._waiting.clear()
        for future in [*self._calls.values(), *(future for _, _, future in self._held)]:
            self._fail(future, grpc.StatusCode.UNAVAILABLE, "connection lost")
        self._calls.clear()
        self._held.clear()

    def close(self) -> None:
        self.closed = True
        self._transport.close()

    def call(self, path: str, message: bytes) -> asyncio.Future[bytes]:
        """The future of the answer; it raises CallError."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.closed:
            self._fail(future, grpc.StatusCode.UNAVAILABLE, "connection lost")
        elif len(self._calls) >= self.streams_max:
            self._held.append((path, message, future))
        else:
            self._begin(path, message, future)
        return future

    def _begin(self, path: str, message: bytes, future: asyncio.Future[bytes]) -> None:
        block = self._blocks.get(path)
        if block is None:
            block = self._blocks[path] = (
                b"\x83\x86" + literal(":path", path) + literal(":authority", self._authority) + _TYPE
                + literal("te", "trailers")
            )  # fmt: skip
        stream, self._next = self._next, self._next + 2
        self._calls[stream] = future
        # Headers wait with the data: streams must begin in the order of their numbers.
        self._waiting.append((stream, frame(HEADERS, END_HEADERS, stream, block), b""))
        self._window += len(block)  # headers use up no window
        self._send_data(stream, _envelope(message), END_STREAM)

    @staticmethod
    def _fail(future: asyncio.Future[bytes], code: grpc.StatusCode, words: str) -> None:
        if not future.done():
            future.set_exception(CallError(code, words))

    def _on_headers(self, stream: int, headers: dict[str, str], over: bool) -> None:
        if not over:
            return
        future = self._calls.pop(stream, None)
        data = self._answers.pop(stream, b"")
        if self._held and len(self._calls) < self.streams_max:
            self._begin(*self._held.popleft())
        if future is None or future.done():
            return
        status = headers.get("grpc-status", "2")
        if status == "0":
            future.set_result(_message(data))
            return
        code = next((code for code in grpc.StatusCode if str(code.value[0]) == status), grpc.StatusCode.UNKNOWN)
        future.set_exception(CallError(code, unquote(headers.get("grpc-message", ""))))

    def _on_data(self, stream: int, data: bytes, over: bool) -> None:
        self._answers[stream] = self._answers.get(stream, b"") + data

    def _on_reset(self, stream: int) -> None:
        future = self._calls.pop(stream, None)
        if future is not None:
            self._fail(future, grpc.StatusCode.UNAVAILABLE, "stream reset")


class Caller:
    """Calls to one address over one connection, which is made when needed and again after it broke."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._client: Client | None = None
        self._turn = asyncio.Lock()

    def ready(self) -> Client | None:
        """The connection, if it stands."""
        return self._client if self._client is not None and not self._client.closed else None

    async def call(self, path: str, message: bytes, timeout_s: float) -> bytes:
        """The answer. Raises CallError; with status UNAVAILABLE when there is no connection to be had."""
        try:
            async with asyncio.timeout(timeout_s):
                return await (self.ready() or await self._connect()).call(path, message)
        except TimeoutError:
            raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None

    async def _connect(self) -> Client:
        async with self._turn:
            if (client := self.ready()) is not None:
                return client
            host, _, port = self._target.rpartition(":")
            try:
                _, self._client = await asyncio.get_running_loop().create_connection(
                    lambda: Client(self._target), host, int(port)
                )
            except OSError as error:
                raise CallError(grpc.StatusCode.UNAVAILABLE, f"no connection to {self._target}: {error}") from None
            return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class Server:
    """Serves unary calls at a port of this machine."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._peers: set[ServerPeer] = set()
        self._server: Any = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ServerPeer(self._handler, self._peers), host, port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for peer in list(self._peers):
            peer.close()
        await self._server.wait_closed()
