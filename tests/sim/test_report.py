"""The report of a run: whole, readable XML in its plots, and honest about what was not measured."""

from __future__ import annotations

import re
from xml.dom import minidom

import pytest

from sim import report


def test_a_plot_is_well_formed_and_holds_each_series() -> None:
    text = report.plot("Ticks <ms>", [0, 1, 2], {"tick": [10, 20, 15], "none": [0, 0, 0]}, " ms")
    drawing = minidom.parseString(re.search(r"<svg.*</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    assert len(drawing.getElementsByTagName("polyline")) == 1  # a series of zeros is left out
    assert "Ticks &lt;ms&gt;" in text


def test_a_plot_of_nothing_says_so() -> None:
    assert "nothing was measured" in report.plot("Ticks", [], {"tick": []})


@pytest.mark.parametrize(("value", "axis"), [(0, 1), (0.7, 1), (1.2, 2), (23, 25), (4200, 5000), (99, 100)])
def test_axes_end_at_a_round_number(value: float, axis: float) -> None:
    assert report._nice(value) == pytest.approx(axis)
