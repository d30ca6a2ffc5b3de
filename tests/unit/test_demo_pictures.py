"""The demo's pictures: PNG there and back, the sheet's shape, and a picture that has something on it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from demo import contact, png, render


def test_a_picture_survives_writing_and_reading(tmp_path: Path) -> None:
    source = random.Random(7)
    rows = [source.randbytes(3 * 17) for _ in range(9)]
    png.write(tmp_path / "a.png", rows)
    assert png.read(tmp_path / "a.png") == rows
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_damaged_picture_is_refused(tmp_path: Path) -> None:
    png.write(tmp_path / "a.png", [bytes(30)] * 4)
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[45] ^= 1
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        png.read(tmp_path / "a.png")


@pytest.mark.parametrize(("frames", "across"), [(1, 1), (2, 2), (6, 3), (12, 4), (24, 6), (48, 8)])
def test_the_sheet_has_a_screens_shape(frames: int, across: int) -> None:
    assert contact.columns(frames) == across


def test_the_sheet_holds_every_picture_in_reading_order() -> None:
    pictures = [[bytes([10 * n]) * 12] * 2 for n in range(1, 6)]
    rows = contact.sheet(pictures)
    assert len({len(row) for row in rows}) == 1
    across = contact.columns(5)
    for number, picture in enumerate(pictures):
        y = contact.GAP + (number // across) * (2 + contact.GAP)
        x = (contact.GAP + (number % across) * (4 + contact.GAP)) * 3
        assert rows[y][x : x + 12] == picture[0]


def test_a_frame_shows_a_ball_before_a_sky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "WIDTH", 32)
    monkeypatch.setattr(render, "HEIGHT", 18)
    first, later = render.render(1, 4), render.render(2, 4)
    assert {len(row) for row in first} == {96}
    assert len(first) == 18
    assert first != later
    assert first == render.render(1, 4)
