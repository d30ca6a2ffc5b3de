"""The launcher's own gRPC understands grpcio at the other end, either way round, and what others may send."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import hpack
import pytest

from launcher import http2, wire
from launcher.http2 import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE

PATH = "/trial.Service/Echo"
BIG = bytes(range(256)) * 200  # 51,200 bytes: more than one HTTP/2 frame holds
HUGE = bytes(range(256)) * 10_000  # more than any window at first
CALLS = 3000  # with BIG among them, more than a connection's first window
DEADLINE_S = 30.0
Code = grpc.StatusCode


@contextlib.asynccontextmanager
async def wire_server(handle: Callable[[wire.Call], None] | None = None, **options: int) -> AsyncIterator[wire.Server]:
    """Echoes; a message "no" is refused in words, one "later" is answered after others, one "bug" breaks it."""

    def echo(call: wire.Call) -> None:
        assert call.path == PATH
        if call.message == b"no":
            raise wire.CallError(Code.UNKNOWN, "Exception: 100% nö")
        if call.message == b"bug":
            raise ZeroDivisionError("of all things")
        if call.message == b"later":
            asyncio.get_running_loop().call_later(0.05, call.reply, b"late")
        else:
            call.reply(call.message + call.header("name").encode())

    server = wire.Server(handle or echo, **options)
    await server.start("127.0.0.1:0")
    try:
        yield server
    finally:
        await server.stop()


def address(server: wire.Server) -> str:
    return f"127.0.0.1:{server.port}"


@contextlib.asynccontextmanager
async def grpcio_server(*options: tuple[str, int]) -> AsyncIterator[tuple[Any, str]]:
    async def echo(request: bytes, context: Any) -> bytes:
        if request == b"no":
            await context.abort(Code.INVALID_ARGUMENT, "100% nö")
        if request == b"never":
            await asyncio.Event().wait()
        if request == b"later":
            await asyncio.sleep(0.2)
        return request

    server = grpc.aio.server(options=list(options))
    handler = grpc.method_handlers_generic_handler("trial.Service", {"Echo": grpc.unary_unary_rpc_method_handler(echo)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_grpcio_is_served() -> None:
    async with wire_server() as server, grpc.aio.insecure_channel(address(server)) as channel:
        echo = channel.unary_unary(PATH)
        named = (("name", "host0001"),)
        messages = [BIG if number % 100 == 0 else b"%d" % number for number in range(CALLS)]
        late = asyncio.ensure_future(echo(b"later", timeout=DEADLINE_S))
        answers = await asyncio.gather(*(echo(message, metadata=named, timeout=DEADLINE_S) for message in messages))
        assert answers == [message + b"host0001" for message in messages]
        assert await late == b"late"
        for message, code, words in (
            (b"no", Code.UNKNOWN, "Exception: 100% nö"),
            (b"bug", Code.INTERNAL, "ZeroDivisionError: of all things"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await echo(message, timeout=DEADLINE_S)
            assert (refused.value.code(), refused.value.details()) == (code, words)


async def test_grpcio_is_called() -> None:
    async with grpcio_server() as (_, target):
        channel = wire.Channel(target)
        messages = [BIG if number % 100 == 0 else b"%d" % number for number in range(CALLS)]
        answers = await asyncio.gather(*(channel.call(PATH, message, DEADLINE_S) for message in messages))
        assert answers == messages
        with pytest.raises(wire.CallError) as refused:
            await channel.call(PATH, b"no", DEADLINE_S)
        assert (refused.value.code(), refused.value.details()) == (Code.INVALID_ARGUMENT, "100% nö")
        with pytest.raises(wire.CallError) as unknown:
            await channel.call("/trial.Service/Other", b"", DEADLINE_S)
        assert unknown.value.code() is Code.UNIMPLEMENTED
        channel.close()


async def test_messages_larger_than_a_window_pass_both_ways() -> None:
    size = ("grpc.max_receive_message_length", 2 * len(HUGE))
    async with (
        wire_server(message_max=2 * len(HUGE)) as server,
        grpc.aio.insecure_channel(address(server), options=[size]) as theirs,
    ):
        echo = theirs.unary_unary(PATH)
        assert await asyncio.gather(*(echo(HUGE, timeout=DEADLINE_S) for _ in range(8))) == [HUGE] * 8
    async with grpcio_server(size) as (_, target):
        ours = wire.Channel(target)
        calls = (ours.call(PATH, HUGE, DEADLINE_S) for _ in range(8))
        assert await asyncio.gather(*calls) == [HUGE] * 8
        ours.close()


async def test_a_message_beyond_the_limit_is_refused_at_both_ends() -> None:
    async with wire_server(message_max=1000) as server:
        channel = wire.Channel(address(server), message_max=100)
        with pytest.raises(wire.CallError) as refused:
            await channel.call(PATH, bytes(1001), DEADLINE_S)
        assert refused.value.code() is Code.RESOURCE_EXHAUSTED
        with pytest.raises(wire.CallError) as refused:
            await channel.call(PATH, bytes(101), DEADLINE_S)
        assert refused.value.code() is Code.RESOURCE_EXHAUSTED
        assert await channel.call(PATH, bytes(100), DEADLINE_S) == bytes(100)
        channel.close()


async def test_a_call_without_an_answer_ends_at_its_deadline_and_the_connection_goes_on() -> None:
    async with grpcio_server() as (_, target):
        channel = wire.Channel(target)
        with pytest.raises(wire.CallError) as late:
            await channel.call(PATH, b"never", 0.2)
        assert late.value.code() in (Code.DEADLINE_EXCEEDED, Code.CANCELLED)  # whoever noticed first
        client = channel.client
        assert await channel.call(PATH, b"one", DEADLINE_S) == b"one"
        assert channel.client is client
        channel.close()


async def test_more_calls_than_the_server_takes_at_a_time_wait_for_their_turn() -> None:
    async with grpcio_server(("grpc.max_concurrent_streams", 2)) as (_, target):
        channel = wire.Channel(target)
        await channel.connect(DEADLINE_S)
        given_up = asyncio.gather(*(channel.call(PATH, b"never", 0.3) for _ in range(3)), return_exceptions=True)
        answers = await asyncio.gather(*(channel.call(PATH, b"%d" % number, DEADLINE_S) for number in range(50)))
        assert answers == [b"%d" % number for number in range(50)]
        assert all(isinstance(error, wire.CallError) for error in await given_up)
        channel.close()


async def test_a_server_that_goes_away_is_unavailable_and_found_again_when_it_is_back() -> None:
    async with wire_server() as server:
        target = address(server)
        channel = wire.Channel(target)
        assert await channel.call(PATH, b"one", DEADLINE_S) == b"one"
        slow = asyncio.ensure_future(channel.call(PATH, b"later", DEADLINE_S))
        await asyncio.sleep(0)  # it is on its way
    with pytest.raises(wire.CallError) as gone:
        await slow
    assert gone.value.code() is Code.UNAVAILABLE
    with pytest.raises(wire.CallError) as gone:
        await channel.call(PATH, b"two", DEADLINE_S)
    assert gone.value.code() is Code.UNAVAILABLE
    again = wire.Server(lambda call: call.reply(call.message))
    await again.start(target)
    assert await channel.call(PATH, b"three", DEADLINE_S) == b"three"
    channel.close()
    await again.stop()


async def test_a_server_that_leaves_answers_what_it_has_taken() -> None:
    async with wire_server() as server:
        channel = wire.Channel(address(server))
        late = asyncio.ensure_future(channel.call(PATH, b"later", DEADLINE_S))
        assert await channel.call(PATH, b"one", DEADLINE_S) == b"one"
        await server.stop(DEADLINE_S)
        assert await late == b"late"
        assert channel.client is None
    async with grpcio_server() as (other, target):
        channel = wire.Channel(target)
        late = asyncio.ensure_future(channel.call(PATH, b"later", DEADLINE_S))
        assert await channel.call(PATH, b"one", DEADLINE_S) == b"one"
        await other.stop(DEADLINE_S)
        assert await late == b"later"


class Raw:
    """The other end of a connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder, self._encoder = hpack.Decoder(), hpack.Encoder()

    def send(self, kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        self._writer.write(http2.frame(kind, flags, stream, payload))

    def headers(self, *more: tuple[str, str], huffman: bool = True) -> bytes:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", PATH), ("te", "trailers"), *more]
        return bytes(self._encoder.encode(fields, huffman=huffman))

    def call(self, stream: int, message: bytes, *more: tuple[str, str]) -> None:
        self.send(HEADERS, END_HEADERS, stream, self.headers(*more))
        self.send(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message)

    async def frame(self, *kinds: int) -> tuple[int, int, int, bytes]:
        """The next frame of these kinds; IncompleteReadError when the connection ends."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                first, flags, stream = struct.unpack(">IBI", await self._reader.readexactly(9))
                payload = await self._reader.readexactly(first >> 8)
                if first & 0xFF in kinds:
                    return first & 0xFF, flags, stream, payload

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Stream, headers and trailers together, and data of the next answer."""
        found: dict[str, str] = {}
        data = b""
        while True:
            kind, flags, stream, payload = await self.frame(HEADERS, DATA)
            if kind == DATA:
                data += payload
            else:
                found |= dict(self._decoder.decode(payload))
            if flags & END_STREAM:
                return stream, found, data


@contextlib.asynccontextmanager
async def raw_client(server: wire.Server) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(http2.PREFACE + http2.frame(SETTINGS, 0, 0))
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def raw_server(serve: Callable[[Raw], Awaitable[None]]) -> AsyncIterator[str]:
    """A server whose connections `serve` handles; they close once the other end has closed."""
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        handlers.add(task)
        await reader.readexactly(len(http2.PREFACE))
        await serve(Raw(reader, writer))
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.wait_for(asyncio.gather(*handlers), DEADLINE_S)


async def test_who_never_says_settings_is_not_connected() -> None:
    """The kernel takes connections for a process that is stopped."""

    async def silent(peer: Raw) -> None:
        pass

    async with raw_server(silent) as target:
        channel = wire.Channel(target)
        with pytest.raises(wire.CallError) as error:
            await channel.connect(0.2)
        assert error.value.code() is Code.UNAVAILABLE
        assert channel.client is None


async def test_headers_in_huffman_code_from_memory_and_in_pieces_are_understood() -> None:
    async with wire_server() as server, raw_client(server) as peer:
        for stream, name in ((1, "a"), (3, "a"), (5, "b"), (7, "a")):
            peer.call(stream, b"x", ("name", name))
            assert (await peer.answer())[2][5:] == b"x" + name.encode()
        block = peer.headers(("name", "c"))
        peer.send(HEADERS, http2.PADDED | http2.PRIORITY, 9, b"\x02" + bytes(5) + block[:3] + bytes(2))
        peer.send(http2.CONTINUATION, 0, 9, block[3:5])
        peer.send(http2.CONTINUATION, END_HEADERS, 9, block[5:])
        peer.send(DATA, http2.PADDED, 9, b"\x03" + struct.pack(">BI", 0, 1) + bytes(3))
        peer.send(DATA, END_STREAM, 9, b"y")
        assert (await peer.answer())[2][5:] == b"yc"


async def test_an_answer_waits_for_the_windows_of_the_other_end() -> None:
    async with wire_server() as server, raw_client(server) as peer:
        peer.send(SETTINGS, 0, 0, struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 10))
        peer.call(1, b"0123456789")  # 15 bytes with its length
        assert (await peer.frame(DATA))[3][5:] == b"01234"
        peer.send(PING, 0, 0, b"8 bytes!")
        assert (await peer.frame(DATA, PING))[3] == b"8 bytes!"  # no more data before
        peer.send(WINDOW_UPDATE, 0, 1, struct.pack(">I", 2))
        assert (await peer.frame(DATA))[3] == b"56"
        peer.send(SETTINGS, 0, 0, struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 12))
        assert (await peer.frame(DATA))[3] == b"78"
        peer.send(WINDOW_UPDATE, 0, 1, struct.pack(">I", 100))
        _, trailers, data = await peer.answer()
        assert (data, trailers["grpc-status"]) == (b"9", "0")


async def test_a_caller_that_hangs_up_costs_nothing() -> None:
    calls: list[wire.Call] = []
    async with wire_server(calls.append) as server, raw_client(server) as peer:
        peer.call(1, b"one")
        peer.send(RST_STREAM, 0, 1, struct.pack(">I", http2.CANCEL))
        peer.call(3, b"two")
        async with asyncio.timeout(DEADLINE_S):
            while len(calls) < 2:  # noqa: ASYNC110 - the handler is no coroutine
                await asyncio.sleep(0.01)
        for call in calls:
            call.reply(call.message)
        stream, _, data = await peer.answer()
        assert (stream, data[5:]) == (3, b"two")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", Code.INTERNAL),
        (struct.pack(">BI", 0, 7) + b"short", Code.INTERNAL),
        (struct.pack(">BI", 1, 2) + b"xx", Code.UNIMPLEMENTED),
    ],
    ids=["no message", "half a message", "a compressed message"],
)
async def test_what_is_no_plain_message_is_refused_alone(message: bytes, code: grpc.StatusCode) -> None:
    async with wire_server() as server, raw_client(server) as peer:
        peer.send(HEADERS, END_HEADERS, 1, peer.headers())
        peer.send(DATA, END_STREAM, 1, message)
        assert (await peer.answer())[1]["grpc-status"] == str(code.value[0])
        peer.call(3, b"next")
        assert (await peer.answer())[2][5:] == b"next"


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100),
        http2.PREFACE + http2.frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        http2.PREFACE + http2.frame(HEADERS, END_HEADERS | http2.PADDED, 1, b"\xff"),
        http2.PREFACE + http2.frame(HEADERS, 0, 1, b"\x82") + http2.frame(DATA, 0, 1, b""),
        http2.PREFACE + http2.frame(HEADERS, 0, 1) + http2.frame(http2.CONTINUATION, 0, 1, bytes(16_000)) * 5,
        http2.PREFACE + struct.pack(">IBI", 16_385 << 8 | DATA, 0, 1),
        http2.PREFACE + http2.frame(WINDOW_UPDATE, 0, 0, b"\x01"),
    ],
    ids=["HTTP/1", "unknown header", "padding", "interrupted headers", "endless headers", "long frame", "short frame"],
)
async def test_nonsense_ends_its_connection_and_no_other(nonsense: bytes) -> None:
    async with wire_server() as server, raw_client(server) as peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(nonsense)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() != b""  # to its end
        writer.close()
        peer.call(1, b"still here")
        assert (await peer.answer())[2][5:] == b"still here"


async def test_a_connection_whose_server_leaves_is_not_used_again() -> None:
    connections: list[Raw] = []

    async def serve(peer: Raw) -> None:
        connections.append(peer)
        peer.send(SETTINGS)
        await peer.frame(DATA)
        if len(connections) == 1:
            peer.send(GOAWAY, 0, 0, struct.pack(">II", 0, http2.NO_ERROR))
        else:
            peer.send(HEADERS, END_HEADERS | END_STREAM, 1, bytes(hpack.Encoder().encode([(":status", "503")])))

    async with raw_server(serve) as target:
        channel = wire.Channel(target)
        for words in ("has not taken", "HTTP status 503"):
            with pytest.raises(wire.CallError, match=words) as error:
                await channel.call(PATH, b"x", DEADLINE_S)
            assert error.value.code() is Code.UNAVAILABLE
        assert len(connections) == 2
        channel.close()


def test_headers_are_remembered_and_forgotten_as_the_sender_says() -> None:
    reader = http2.HeaderReader()
    assert reader.read(b"\x40\x04name\x05value") == {"name": "value"}
    for _ in range(2):
        assert reader.read(b"\xbe") == {"name": "value"}  # entry 62: the last one remembered
    assert reader.read(b"\x40\x04name\x05other") == {"name": "other"}
    assert reader.read(b"\xbe") == {"name": "other"}
    assert reader.read(b"\x82\x00\x01a\x01b") == {":method": "GET", "a": "b"}
    reader.read(b"\x20")  # a table of size 0
    with pytest.raises(http2.Broken):
        reader.read(b"\xbe")
