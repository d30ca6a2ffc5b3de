"""What a frame's command says once its tokens are replaced, and the frame number that a frame's name carries."""

from __future__ import annotations

import re

from jobspec import framerange

_NAME = re.compile(r"(-?\d+)-(.+)", re.ASCII | re.DOTALL)


def frame_name(number: int, layer_name: str) -> str:
    """Name of a frame: 0001-comp, -001-comp."""
    return f"{number:04d}-{layer_name}"


def split_frame_name(name: str) -> "tuple[int, str]":
    """(number, layer name) of a frame's name; a leading dash is a sign. Raises ValueError for no such name."""
    match = _NAME.fullmatch(name)
    if not match:
        raise ValueError(f'"{name}" is not a frame name such as 0001-comp')
    return int(match[1]), match[2]


def substitute(
    cmd: str, *, frame_number: int, frame_name: str, layer_name: str, job_name: str, str_range: str, chunk: int
) -> str:
    """The command of one frame.

    frame_number is `frame.int_number`, frame_name `frame.str_name`, str_range and chunk those of the layer. Tokens are
    replaced literally, in OpenCue's order. A frame that the range no longer names is a chunk of its own.
    """
    if "#" not in cmd:
        return cmd
    numbers = [frame_number]
    if chunk > 1 and ("#FRAME_END#" in cmd or "#FRAMESPEC#" in cmd):
        numbers = framerange.chunk_of(str_range, chunk, frame_number)
    values = (
        ("#ZFRAME#", f"{frame_number:04d}"),
        ("#IFRAME#", str(frame_number)),
        ("#FRAME_START#", str(frame_number)),
        ("#FRAME_END#", str(numbers[-1])),
        ("#FRAME_CHUNK#", str(chunk)),
        ("#LAYER#", layer_name),
        ("#JOB#", job_name),
        ("#FRAMESPEC#", framerange.compress(numbers)),
        ("#FRAME#", frame_name),
    )
    for token, value in values:
        cmd = cmd.replace(token, value)
    return cmd
