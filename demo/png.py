"""Just enough PNG: 8-bit RGB pictures, written and read back with the standard library.

A picture is a list of rows; a row is a bytes object of width * 3 values (red, green, blue; 0 to 255).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SUB = 1  # filter: each byte is stored as the difference to the pixel on its left; gradients pack well


def write(path: Path, rows: Sequence[bytes]) -> None:
    """Write `rows` (all of one length, a multiple of 3) to `path`; a reader sees the old file or the whole new one."""
    width = len(rows[0]) // 3
    lines = bytearray()
    for row in rows:
        lines.append(SUB)
        lines += row[:3]
        lines += bytes((here - left) & 255 for left, here in zip(row, row[3:], strict=False))
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(lines), 9)
    data = SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    scratch = path.with_name(f"{path.name}.{os.getpid()}.part")
    scratch.write_bytes(data)
    scratch.replace(path)


def read(path: Path) -> list[bytes]:
    """The rows of a picture that `write` made. Raises ValueError for any other PNG, or a damaged one."""
    data = path.read_bytes()
    if not data.startswith(SIGNATURE):
        raise ValueError(f"{path} is not a PNG file")
    chunks = dict(_chunks(path, data))
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    if (depth, colour, rest) != (8, 2, [0, 0, 0]):
        raise ValueError(f"{path} is not 8-bit RGB without interlacing")
    lines = zlib.decompress(chunks[b"IDAT"])
    size = 1 + width * 3
    if len(lines) != height * size:
        raise ValueError(f"{path} holds {len(lines)} bytes of picture; {height * size} are due")
    return [_unfilter(path, lines[start : start + size]) for start in range(0, len(lines), size)]


def _unfilter(path: Path, line: bytes) -> bytes:
    if line[0] != SUB:
        raise ValueError(f"{path} uses PNG filter {line[0]}; only {SUB} is read")
    row = bytearray(line[1:])
    for at in range(3, len(row)):
        row[at] = (row[at] + row[at - 3]) & 255
    return bytes(row)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _chunks(path: Path, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if data[at + 8 + length : at + 12 + length] != struct.pack(">I", zlib.crc32(kind + body)):
            raise ValueError(f"{path} is damaged: wrong checksum in chunk {kind.decode('latin-1')}")
        yield kind, body
        at += 12 + length
