"""The fake farm's own gRPC understands grpcio at the other end, either way round."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from sim import wire

PATH = "/trial.Service/Echo"
BIG = bytes(range(256)) * 200  # 51,200 bytes: more than one HTTP/2 frame holds
CALLS = 3000  # with BIG among them, more than a connection's first window


@contextlib.asynccontextmanager
async def wire_server() -> AsyncIterator[str]:
    """Echoes; a message "no" is refused in words, one "later" is answered after others."""

    def handle(headers: dict[str, str], message: bytes, reply: wire.Reply) -> None:
        assert headers[":path"] == PATH
        if message == b"no":
            reply(wire.CallError(grpc.StatusCode.UNKNOWN, "Exception: 100% nö"))
        elif message == b"later":
            asyncio.get_running_loop().call_later(0.05, reply, b"late")
        else:
            reply(message + headers.get("name", "").encode())

    server = wire.Server(handle)
    await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def grpcio_server() -> AsyncIterator[str]:
    async def echo(request: bytes, context: Any) -> bytes:
        if request == b"no":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "100% nö")
        return request

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        "trial.Service", {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_grpcio_is_served() -> None:
    async with wire_server() as target, grpc.aio.insecure_channel(target) as channel:
        echo = channel.unary_unary(PATH)
        named = (("name", "host0001"),)
        messages = [BIG if number % 100 == 0 else b"%d" % number for number in range(CALLS)]
        late = asyncio.ensure_future(echo(b"later", timeout=10))
        answers = await asyncio.gather(*(echo(message, metadata=named, timeout=30) for message in messages))
        assert answers == [message + b"host0001" for message in messages]
        assert await late == b"late"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await echo(b"no", timeout=10)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNKNOWN, "Exception: 100% nö")


async def test_grpcio_is_called() -> None:
    async with grpcio_server() as target:
        caller = wire.Caller(target)
        messages = [BIG if number % 100 == 0 else b"%d" % number for number in range(CALLS)]
        answers = await asyncio.gather(*(caller.call(PATH, message, 30) for message in messages))
        assert answers == messages
        with pytest.raises(wire.CallError) as refused:
            await caller.call(PATH, b"no", 10)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "100% nö")
        caller.close()


async def test_a_server_that_goes_away_is_unavailable_and_found_again_when_it_is_back() -> None:
    async with wire_server() as target:
        caller = wire.Caller(target)
        assert await caller.call(PATH, b"one", 10) == b"one"
        slow = asyncio.ensure_future(caller.call(PATH, b"later", 10))
        await asyncio.sleep(0)  # it is on its way
    with pytest.raises(wire.CallError) as gone:
        await slow
    assert gone.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(wire.CallError) as gone:
        await caller.call(PATH, b"two", 10)
    assert gone.value.code() is grpc.StatusCode.UNAVAILABLE
    server = wire.Server(lambda headers, message, reply: reply(message))
    await server.start("127.0.0.1", int(target.rpartition(":")[2]))
    assert await caller.call(PATH, b"three", 10) == b"three"
    caller.close()
    await server.stop()


def test_headers_are_remembered_and_forgotten_as_the_sender_says() -> None:
    table = wire.HeaderTable()
    assert table.decode(b"\x40\x04name\x05value") == {"name": "value"}
    assert table.decode(b"\xbe") == {"name": "value"}  # entry 62: the last one remembered
    assert table.decode(b"\x82\x00\x01a\x01b") == {":method": "GET", "a": "b"}
    table.decode(b"\x20")  # a table of size 0
    with pytest.raises(wire.Broken):
        table.decode(b"\xbe")
    with pytest.raises(wire.Broken, match="Huffman"):
        table.decode(b"\x00\x81\x00\x01a")
