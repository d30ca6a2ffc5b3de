"""Frame ranges: text to frame numbers, chunks of them, and back to text.

5, -5            one frame
1-10, 10-1       every frame, up or down
1-10x3           every third: 1 4 7 10; going down: 10-1x-3
1-10y3           all but every third: 2 3 5 6 8 9
1-10:5           interleaved, coarse first: 1 6, 2 4 8 10, 3 5 7 9
1-4,10,20-30x2   parts, one after the other; a number that occurred is not repeated
"""

from __future__ import annotations

import functools
import re
from typing import Dict, Iterator, List, Sequence, Tuple

FRAMES_MAX = 100_000  # frames a spec may have
ELEMENTS_MAX = 1_000_000  # numbers its ranges may name: frames times chunk
NUMBER_MAX = 2_147_483_647

_PART = re.compile(r"(-?\d{1,10})(?:-(-?\d{1,10})(?:([xy:])(-?\d{1,10}))?)?", re.ASCII)
_SYNTAX = (
    "write frames as 5, 1-10, 1-10x2, 1-10y2 or 1-10:4, joined by commas; going down takes a negative step: 10-1x-2"
)


class RangeError(ValueError):
    """A bad range; `hint` says how ranges are written."""

    def __init__(self, message: str, hint: str = _SYNTAX) -> None:
        super().__init__(message)
        self.hint = hint


def expand(text: str, limit: int = ELEMENTS_MAX) -> List[int]:
    """The numbers of a range in order, without repeats. Raises RangeError; nothing over `limit` is ever built."""
    parts = [_parse(part) for part in text.split(",")]
    total = 0
    for part in parts:
        total += part.size
        if total > limit:
            raise RangeError(f'range "{_short(text)}" has more than {limit:,} frames', f"at most {limit:,} are allowed")
    numbers: Dict[int, None] = {}
    for part in parts:
        numbers.update(dict.fromkeys(part.numbers()))
    return list(numbers)


def chunked(numbers: Sequence[int], chunk: int) -> List[Sequence[int]]:
    """Cut into frames: each is the chunk's numbers, the first of which is the frame's own number."""
    if chunk < 1:
        raise RangeError(f"chunk {chunk} is not positive", "a chunk is the number of frames that one command renders")
    return [numbers[start : start + chunk] for start in range(0, len(numbers), chunk)]


def chunk_of(text: str, chunk: int, number: int) -> List[int]:
    """The numbers rendered together with frame `number`; that number alone if the range no longer names it."""
    numbers, positions = _located(text)
    start = positions.get(number)
    return [number] if start is None else numbers[start : start + max(chunk, 1)]


@functools.lru_cache(maxsize=16)
def _located(text: str) -> Tuple[List[int], Dict[int, int]]:
    """A range and where each number stands in it; kept, because the frames of a layer are launched together."""
    numbers = expand(text)
    return numbers, {number: position for position, number in enumerate(numbers)}


def compress(numbers: Sequence[int]) -> str:
    """A range text for distinct numbers, in their order: [1, 2, 3, 7] gives 1-3,7."""
    parts = []
    start, count = 0, len(numbers)
    while start < count:
        end = start + 1
        step = numbers[end] - numbers[start] if end < count else 1
        while end < count and numbers[end] - numbers[end - 1] == step:
            end += 1
        first, last = numbers[start], numbers[end - 1]
        if end - start == 1:
            parts.append(f"{first}")
        elif step == 1:
            parts.append(f"{first}-{last}")
        elif end - start == 2:
            parts.append(f"{first}")  # two numbers apart are no run: the second may start one
            end -= 1
        else:
            parts.append(f"{first}-{last}x{step}")
        start = end
    return ",".join(parts)


class _Part:
    """One part between commas."""

    def __init__(self, first: int, last: int, kind: str, step: int) -> None:
        self.first, self.last, self.kind, self.step = first, last, kind, step

    @property
    def size(self) -> int:
        """An upper bound of the numbers, exact but for y."""
        span = abs(self.last - self.first)
        return span // abs(self.step) + 1 if self.kind == "x" else span + 1

    def numbers(self) -> Iterator[int]:
        if self.kind == "x":
            yield from _run(self.first, self.last, self.step)
        elif self.kind == "y":
            for position, number in enumerate(_run(self.first, self.last, _sign(self.step))):
                if position % abs(self.step):
                    yield number
        else:
            # Each pass halves the step and starts one frame further in; the caller drops repeats.
            first, size, direction = self.first, abs(self.step), _sign(self.step)
            while size:
                yield from _run(first, self.last, size * direction)
                first += direction
                size //= 2


def _parse(text: str) -> _Part:
    match = _PART.fullmatch(text.strip())
    if not match:
        raise RangeError(f'"{_short(text.strip())}" is not a frame range')
    first, last = int(match[1]), int(match[2] or match[1])
    if max(abs(first), abs(last)) > NUMBER_MAX:
        raise RangeError(f'frame number in "{_short(text.strip())}" is over {NUMBER_MAX:,}')
    step = int(match[4]) if match[4] else (1 if first <= last else -1)
    if step == 0:
        raise RangeError(f'step of "{text.strip()}" is zero')
    if first != last and (last > first) != (step > 0):
        raise RangeError(f'step of "{text.strip()}" leads away from its last frame')
    return _Part(first, last, match[3] or "x", step if first != last else abs(step))


def _run(first: int, last: int, step: int) -> range:
    return range(first, last + _sign(step), step)


def _sign(step: int) -> int:
    return 1 if step > 0 else -1


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
