"""Command tokens."""

from __future__ import annotations

from typing import Any

import pytest

from jobspec.tokens import frame_name, split_frame_name, substitute

FRAME = {
    "frame_number": 6,
    "frame_name": "0006-comp",
    "layer_name": "comp",
    "job_name": "show-shot-user_job",
    "str_range": "1-12",
    "chunk": 5,
}


@pytest.mark.parametrize(
    ("cmd", "said"),
    [
        ("render #ZFRAME# #IFRAME# #FRAME_START#", "render 0006 6 6"),
        ("#FRAME_END# of #FRAME_CHUNK#", "10 of 5"),
        ("#LAYER# #JOB# #FRAME#", "comp show-shot-user_job 0006-comp"),
        ("-F #FRAMESPEC#", "-F 6-10"),
        ("#IFRAME##IFRAME#", "66"),
        ("#LAYER#IFRAME#", "#LAYER6"),  # the earlier token of OpenCue's order wins
        ("no token, # or #OTHER#", "no token, # or #OTHER#"),
    ],
)
def test_tokens_say_what_frame_this_is(cmd: str, said: str) -> None:
    assert substitute(cmd, **FRAME) == said  # type: ignore[arg-type]


def test_the_last_chunk_is_short() -> None:
    frame: dict[str, Any] = {**FRAME, "frame_number": 11, "frame_name": "0011-comp"}
    assert substitute("#FRAMESPEC# #FRAME_END#", **frame) == "11-12 12"


def test_values_are_not_patterns() -> None:
    frame: dict[str, Any] = {**FRAME, "layer_name": r"a$1\0", "job_name": "$0"}
    assert substitute("#LAYER# #JOB#", **frame) == r"a$1\0 $0"


def test_a_frame_that_the_range_lost_renders_alone() -> None:
    frame: dict[str, Any] = {**FRAME, "frame_number": 99}
    assert substitute("#FRAMESPEC# #FRAME_END#", **frame) == "99 99"


def test_negative_frames_have_a_number() -> None:
    assert frame_name(-1, "comp") == "-001-comp"
    assert split_frame_name("-001-comp") == (-1, "comp")
    assert split_frame_name("-0001-comp") == (-1, "comp")
    assert split_frame_name("0012-comp-x") == (12, "comp-x")
    frame: dict[str, Any] = {**FRAME, "frame_number": -1, "frame_name": "-001-comp", "str_range": "-3-3", "chunk": 1}
    assert substitute("#IFRAME# #FRAME# #FRAMESPEC#", **frame) == "-1 -001-comp -1"


@pytest.mark.parametrize("name", ["comp", "0001", "0001-", "-comp", ""])
def test_other_names_are_no_frame_names(name: str) -> None:
    with pytest.raises(ValueError, match="not a frame name"):
        split_frame_name(name)
