"""Frame ranges: their syntax, their bounds, and the way back to text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.framerange import RangeError, chunk_of, chunked, compress, expand

NUMBERS = st.lists(st.integers(-2000, 2000), min_size=1, max_size=60, unique=True)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5", [5]),
        ("-5", [-5]),
        ("1-4", [1, 2, 3, 4]),
        ("4-1", [4, 3, 2, 1]),
        ("-2-1", [-2, -1, 0, 1]),
        ("-5--3", [-5, -4, -3]),
        ("1-10x3", [1, 4, 7, 10]),
        ("10-1x-3", [10, 7, 4, 1]),
        ("7-7x3", [7]),
        ("1-10y3", [2, 3, 5, 6, 8, 9]),
        ("10-1y-3", [9, 8, 6, 5, 3, 2]),
        ("1-3y1", []),
        ("1-10:5", [1, 6, 2, 4, 8, 10, 3, 5, 7, 9]),
        ("10-1:-4", [10, 6, 2, 9, 7, 5, 3, 1, 8, 4]),
        ("1-3, 10 ,2-4", [1, 2, 3, 10, 4]),
    ],
)
def test_a_range_names_these_frames(text: str, numbers: list[int]) -> None:
    assert expand(text) == numbers


@pytest.mark.parametrize(
    "text",
    ["", ",", "1-", "a", "1-10x", "1-10x0", "10-1x1", "1-10x-1", "1--", "1-10z2", "1,,2", "99999999999", "\u0661"],
)
def test_a_bad_range_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(RangeError) as caught:
        expand(text)
    assert str(caught.value)
    assert caught.value.hint or "over" in str(caught.value)


@pytest.mark.parametrize("text", ["1-2000000000", "-2000000000-2000000000y2", "1-2000000000:7", "1-600000,1-600000"])
def test_a_huge_range_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(RangeError, match="more than"):
        expand(text)


@given(NUMBERS)
def test_what_compress_writes_expand_reads(numbers: list[int]) -> None:
    assert expand(compress(numbers)) == numbers


@given(NUMBERS, st.integers(1, 80))
def test_chunks_cover_every_frame_once(numbers: list[int], chunk: int) -> None:
    chunks = chunked(numbers, chunk)
    assert [number for part in chunks for number in part] == numbers
    assert all(1 <= len(part) <= chunk for part in chunks)


@given(NUMBERS, st.integers(1, 10))
def test_chunk_of_finds_the_chunk_that_a_frame_starts(numbers: list[int], chunk: int) -> None:
    text = compress(numbers)
    for part in chunked(numbers, chunk):
        assert chunk_of(text, chunk, part[0]) == part


def test_compress_writes_runs() -> None:
    assert compress([1, 2, 3, 7, 9, 11, 20]) == "1-3,7-11x2,20"
    assert compress([5, 4, 3]) == "5-3x-1"
    assert compress([1, 2]) == "1-2"
    assert compress([1, 5]) == "1,5"
    assert compress([]) == ""


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(RangeError):
        chunked([1], 0)


def test_a_frame_that_the_range_lost_is_its_own_chunk() -> None:
    assert chunk_of("1-10", 4, 99) == [99]
