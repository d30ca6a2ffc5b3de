"""Puts all frames of the demo's film on one sheet: the frame of the job that depends on all others.

Run as `python demo/contact.py --pictures DIRECTORY --of 24`; writes contact.png beside the frames.
"""

from __future__ import annotations

import argparse
import sys
from math import ceil, sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo import png

GAP = 6  # pixels between pictures and around them
PAPER = bytes((24, 24, 28))


def columns(frames: int) -> int:
    """How many pictures stand side by side: near a screen's shape, with few places left empty."""
    ideal = ceil(sqrt(frames * 1.4))
    choice = range(max(ideal - 1, 1), ideal + 2)
    return min(choice, key=lambda across: (-frames % across, abs(across - ideal)))


def shrink(rows: list[bytes], factor: int) -> list[bytes]:
    """The picture at 1/`factor` of its size; each pixel is the mean of those it stands for."""
    small = []
    share = factor * factor
    for top in range(0, len(rows) - factor + 1, factor):
        sums = [sum(column) for column in zip(*rows[top : top + factor], strict=True)]
        width = len(sums) // 3 // factor
        small.append(
            bytes(
                sum(sums[(x * factor + step) * 3 + part] for step in range(factor)) // share
                for x in range(width)
                for part in range(3)
            )
        )
    return small


def sheet(pictures: list[list[bytes]]) -> list[bytes]:
    """All pictures (of one size) on one sheet, in reading order."""
    across = columns(len(pictures))
    height, width = len(pictures[0]), len(pictures[0][0]) // 3
    total = across * (width + GAP) + GAP
    blank = PAPER * total
    rows = [blank] * GAP
    for first in range(0, len(pictures), across):
        line = pictures[first : first + across]
        empty = PAPER * (width * (across - len(line)) + GAP * (across - len(line)))
        for y in range(height):
            rows.append(PAPER * GAP + b"".join(picture[y] + PAPER * GAP for picture in line) + empty)
        rows += [blank] * GAP
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the demo's frames on one sheet.")
    parser.add_argument("--pictures", type=Path, required=True, help="the directory of frame.0001.png and so on")
    parser.add_argument("--of", type=int, required=True, help="how many frames the film has")
    options = parser.parse_args()
    factor = 2 if options.of <= 60 else 4
    pictures = [shrink(png.read(options.pictures / f"frame.{n:04d}.png"), factor) for n in range(1, options.of + 1)]
    png.write(options.pictures / "contact.png", sheet(pictures))
    print(f"contact.png: {len(pictures)} pictures")


if __name__ == "__main__":
    main()
