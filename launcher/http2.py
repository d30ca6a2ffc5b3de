"""HTTP/2 as far as gRPC's unary calls need it, on asyncio: frames, headers, settings and windows. See wire.py.

A stream carries one message each way. Nothing here knows what a message means.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 7, 8  # error codes
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4  # settings
WINDOW = 65_535  # bytes, until settings say otherwise
WINDOW_MAX = (1 << 31) - 1
STREAM_MAX = (1 << 31) - 1
FRAME_MAX = 16_384  # bytes of a frame, the default: nothing longer is sent or taken
HEADERS_MAX = 65_536  # bytes of one stream's headers
PREFIX = 5  # bytes before a message
STREAMS_MAX = 1000  # at a time, of one connection
BLOCKS_KEPT = 4096
RETURN_AT = 1 << 20  # bytes taken after which the other end's window gets them back


class Broken(Exception):
    """The other end does not speak what is understood here."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header that the other end is not to remember."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode("latin-1")
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, size = len(data) - 127, [127]
    while rest >= 128:
        size.append(rest % 128 + 128)
        rest //= 128
    return bytes((*size, rest)) + data


class HeaderReader:
    """Reads one direction's headers. Blocks that leave nothing to remember are read once and known from then on."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=HEADERS_MAX)
        self._known: dict[bytes, Mapping[str, str]] = {}

    def read(self, block: bytes) -> Mapping[str, str]:
        """Name -> value; of a name that comes twice the last counts. Raises Broken."""
        found = self._known.get(block)
        if found is None:
            before = self._table()
            try:
                fields = self._decoder.decode(block, raw=True)
            except hpack.HPACKError as error:
                raise Broken(f"headers that cannot be read: {error}") from None
            found = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
            # What a block means depends on what is remembered.
            if self._table() != before or len(self._known) >= BLOCKS_KEPT:
                self._known.clear()
            else:
                self._known[block] = found
        return found

    def _table(self) -> tuple[int, int, int]:
        """Differs once something was remembered or forgotten: new entries are new objects at the front."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return table.maxsize, len(entries), id(entries[0]) if entries else 0


class Stream:
    """One call: what has come in, and what is still to go out."""

    __slots__ = ("after", "headers", "number", "parts", "rest", "size", "window")

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.headers: Mapping[str, str] = {}
        self.parts: list[bytes] = []
        self.size = 0  # bytes of the other end's window that it takes up
        self.window = window  # bytes that may be sent
        self.rest: bytes = b""  # what the windows had no room for yet
        self.after: tuple[int, bytes] = (0, b"")  # flags of the last frame of it, and frames that follow it


class Connection(asyncio.Protocol):
    """What both ends share. What one turn of the loop gives rise to leaves in one write."""

    def __init__(self, message_max: int) -> None:
        """`message_max` in bytes: larger messages are not taken."""
        self.message_max = message_max
        self.transport: Any = None
        self.streams: dict[int, Stream] = {}
        self.streams_max = STREAMS_MAX  # that the other end allows
        self.settled = asyncio.get_running_loop().create_future()  # done once the other end's settings are known
        self._in = bytearray()
        self._out: list[bytes] = []
        self._reader = HeaderReader()
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags: headers that go on in the next frame
        self._taken = 0  # bytes that the other end's window has to get back
        self._window = WINDOW  # bytes that may be sent on the connection
        self.stream_window = WINDOW  # and on a new stream
        self._blocked: dict[int, Stream] = {}  # streams with a rest

    # The socket

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        stream_window = min(self.message_max + FRAME_MAX, WINDOW_MAX)
        window = min(4 * stream_window + (1 << 24), WINDOW_MAX)
        settings = ((MAX_CONCURRENT_STREAMS, STREAMS_MAX), (INITIAL_WINDOW_SIZE, stream_window))
        self.write(
            frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in settings))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - WINDOW))
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._blocked.clear()
        self._out.clear()
        if not self.settled.done():
            self.settled.set_exception(ConnectionResetError("closed before it was of use"))
            self.settled.exception()  # whether somebody waits for it or not

    def write(self, data: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()

    def close(self) -> None:
        """Send what is to be sent, then close."""
        self._flush()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._in += data
        try:
            self._read()
        except (Broken, IndexError, struct.error) as error:
            self.write(frame(GOAWAY, 0, 0, struct.pack(">II", 0, PROTOCOL_ERROR) + str(error).encode()))
            self.close()

    def _read(self) -> None:
        have, at = self._in, 0
        while len(have) - at >= 9:
            first, flags, stream = struct.unpack_from(">IBI", have, at)
            size = first >> 8
            if size > FRAME_MAX:
                raise Broken(f"a frame of {size} bytes")
            end = at + 9 + size
            if len(have) < end:
                break
            self._frame(first & 0xFF, flags, stream & STREAM_MAX, bytes(have[at + 9 : end]))
            at = end
        del have[:at]

    # What comes in

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block and kind != CONTINUATION:
            raise Broken("headers that do not go on")
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind == HEADERS:
            payload = _unpadded(flags, payload)
            if flags & PRIORITY:
                payload = payload[5:]
            if flags & END_HEADERS:
                self.on_headers(number, self._reader.read(payload), bool(flags & END_STREAM))
            else:
                self._block = (number, flags, bytearray(payload))
        elif kind == CONTINUATION:
            self._continue(flags, number, payload)
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._widen(number, struct.unpack(">I", payload)[0] & WINDOW_MAX)
        elif kind == RST_STREAM:
            stream = self.drop(number)
            if stream is not None:
                self.on_reset(stream, struct.unpack(">I", payload)[0])
        elif kind == GOAWAY:
            self.on_goaway(struct.unpack_from(">I", payload)[0] & STREAM_MAX)

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._give_back(len(payload))
            return
        stream.size += len(payload)
        payload = _unpadded(flags, payload)
        if payload:
            stream.parts.append(payload)
        if stream.size > self.message_max + PREFIX:
            self.on_too_large(stream)
        elif flags & END_STREAM:
            self.on_end(stream)

    def _continue(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise Broken("headers that go on without a beginning")
        _, first_flags, block = self._block
        block += payload
        if len(block) > HEADERS_MAX:
            raise Broken("headers without an end")
        if flags & END_HEADERS:
            self._block = None
            self.on_headers(number, self._reader.read(bytes(block)), bool(first_flags & END_STREAM))

    def _settings(self, payload: bytes) -> None:
        for place in range(0, len(payload), 6):
            name, value = struct.unpack_from(">HI", payload, place)
            if name == MAX_CONCURRENT_STREAMS:
                self.streams_max = min(STREAMS_MAX, value)
            elif name == INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self.stream_window
                self.stream_window = value
        self.write(frame(SETTINGS, ACK, 0))
        if not self.settled.done():
            self.settled.set_result(None)
        self._send_blocked()

    def _widen(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        elif (stream := self.streams.get(number)) is not None:
            stream.window += more
        else:
            return
        if self._blocked:
            self._send_blocked()

    # What goes out

    def open(self, stream: Stream, headers: bytes) -> None:
        """Begin to send on a stream: its headers."""
        self.streams[stream.number] = stream
        self.write(frame(HEADERS, END_HEADERS, stream.number, headers))

    def new_stream(self, number: int) -> Stream:
        return Stream(number, self.stream_window)

    def send(self, stream: Stream, data: bytes, flags: int = 0, after: bytes = b"") -> None:
        """Send a message as the windows have room for it; `flags` are its last frame's, `after` is what follows it."""
        size = len(data)
        if size <= FRAME_MAX and size <= self._window and size <= stream.window:
            self._window -= size
            stream.window -= size
            self.write(frame(DATA, flags, stream.number, data) + after)
            if after:
                self.drop(stream.number)
            return
        stream.rest, stream.after = data, (flags, after)
        self._blocked[stream.number] = stream
        self._send_blocked()

    def _send_blocked(self) -> None:
        for stream in list(self._blocked.values()):
            while stream.rest and (room := min(FRAME_MAX, self._window, stream.window)) > 0:
                part, stream.rest = stream.rest[:room], stream.rest[room:]
                self._window -= len(part)
                stream.window -= len(part)
                flags, after = stream.after if not stream.rest else (0, b"")
                self.write(frame(DATA, flags, stream.number, part) + after)
            if not stream.rest:
                del self._blocked[stream.number]
                if stream.after[1]:
                    self.drop(stream.number)

    def reset(self, stream: Stream, code: int) -> None:
        """Be done with a stream before its time."""
        if self.drop(stream.number) is not None:
            self.write(frame(RST_STREAM, 0, stream.number, struct.pack(">I", code)))

    def drop(self, number: int) -> Stream | None:
        """Forget a stream; what it took up of the other end's window goes back."""
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._blocked.pop(number, None)
            self._give_back(stream.size)
        return stream

    def _give_back(self, size: int) -> None:
        self._taken += size
        if self._taken >= RETURN_AT:
            self.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._taken)))
            self._taken = 0

    # What the two ends make of it

    def on_headers(self, number: int, headers: Mapping[str, str], over: bool) -> None:
        raise NotImplementedError

    def on_end(self, stream: Stream) -> None:
        """The other end has sent all that it sends on this stream."""
        raise NotImplementedError

    def on_too_large(self, stream: Stream) -> None:
        raise NotImplementedError

    def on_reset(self, stream: Stream, code: int) -> None:
        """The other end has done with the stream, which is dropped already."""

    def on_goaway(self, last: int) -> None:
        """The other end takes no streams after number `last`."""


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Broken("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
