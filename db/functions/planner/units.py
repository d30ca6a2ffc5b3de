"""Every conversion between what people write (cores, GiB, MiB) and what columns hold (core points, KiB)."""

from __future__ import annotations

from decimal import Decimal
from typing import Union

POINTS_PER_CORE = 100
KIB_PER_MIB = 1024
KIB_PER_GIB = 1024 * 1024

Number = Union[int, float, Decimal]


def points_from_cores(cores: Number) -> int:
    """Core points of a number of cores, cut to whole points."""
    return int(cores * POINTS_PER_CORE)


def cores_from_points(points: int) -> float:
    return points / POINTS_PER_CORE


def kib_from_mib(mib: Number) -> int:
    """KiB of a number of MiB, cut to whole KiB."""
    return int(mib * KIB_PER_MIB)


def kib_from_gib(gib: Number) -> int:
    """KiB of a number of GiB, cut to whole KiB."""
    return int(gib * KIB_PER_GIB)
