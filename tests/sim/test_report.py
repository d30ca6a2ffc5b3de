"""The report of a run: whole, readable XML in its plots, and honest about what was not measured."""

from __future__ import annotations

import re
from xml.dom import minidom

import pytest

from sim import report, run


def test_a_plot_is_well_formed_and_holds_each_series() -> None:
    text = report.section(report.Plot("Ticks <ms>", [0, 1, 2], {"tick": [10, 20, 15], "none": [0, 0, 0]}, " ms"))
    drawing = minidom.parseString(re.search(r"<svg.*</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    assert len(drawing.getElementsByTagName("polyline")) == 1  # a series of zeros is left out
    assert "Ticks &lt;ms&gt;" in text


def test_a_picture_is_a_drawing_of_its_own_that_names_its_lines() -> None:
    text = report.picture(report.Plot("Cores", [0, 1], {"booked": [0, 99], "busy": [0, 50]}, "%", 100))
    drawing = minidom.parseString(text)
    assert len(drawing.getElementsByTagName("polyline")) == 2
    assert {"booked", "busy", "100%"} <= {node.firstChild.data for node in drawing.getElementsByTagName("text")}


def test_a_farm_counts_as_filled_from_the_first_tick_at_99_percent_and_the_worst_after_it_is_told() -> None:
    ticks = [{"at": 10 + n, "idle_cores": idle, "cores": 100} for n, idle in enumerate((50, 1, 0, 3, 0))]
    assert run.fill_of(ticks, began=10) == (1, 0.97)
    assert run.fill_of(ticks[:1], began=10) == (None, 0.0)


def test_a_plot_of_nothing_says_so() -> None:
    assert "nothing was measured" in report.section(report.Plot("Ticks", [], {"tick": []}))


@pytest.mark.parametrize(("value", "axis"), [(0, 1), (0.7, 1), (1.2, 2), (23, 25), (4200, 5000), (99, 100)])
def test_axes_end_at_a_round_number(value: float, axis: float) -> None:
    assert report._nice(value) == pytest.approx(axis)
