"""The report of a simulated run: one HTML file with its plots as inline SVG; nothing to load, nothing to install."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 860, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 28
COLOURS = ("#3b6fd4", "#d9822b", "#2e9e6b", "#b3477d", "#7a5cc4", "#8a8f98", "#c0392b")
STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #667085; --line: #d8dde6; --back: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --dim: #9aa3b2; --line: #343b47; --back: #14181f; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 900px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; } td { padding: .15rem 1.5rem .15rem 0; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font-size: 12px; }
.grid { stroke: var(--line); stroke-width: 1; } .key { color: var(--dim); } .key b { font-weight: normal; }
"""

Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Plot:
    """Lines over time. `seconds` are the moments, each series as long; `top` fixes the axis, else the data do."""

    title: str
    seconds: Sequence[float]
    series: Series
    unit: str = ""
    top: float | None = None


def page(title: str, words: str, summary: Mapping[str, object], plots: Sequence[Plot]) -> str:
    """The whole file."""
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(_plain(value))}</td></tr>"
        for name, value in summary.items()
    )
    drawn = "".join(map(section, plots))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{html.escape(title)}</h1><p>{html.escape(words)}</p><table>{rows}</table>{drawn}</body></html>\n"
    )


def section(plot: Plot) -> str:
    """The plot in the page: its title, its lines, and what they are."""
    title, drawn = html.escape(plot.title), _lines(plot)
    if not drawn:
        return f"<h2>{title}</h2><p class='key'>nothing was measured</p>"
    keys = [f'<b style="color:{colour}">&#9632;</b> {html.escape(name)}' for name, colour in _colours(plot)]
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{drawn}</svg>'
    return f"<h2>{title}</h2>{drawing}<div class='key'>{' &nbsp; '.join(keys)}</div>"


def picture(plot: Plot) -> str:
    """The plot as an SVG file of its own, for documents on pages light or dark."""
    keys = []
    for number, (name, colour) in enumerate(_colours(plot)):
        x = LEFT + number * 160
        keys.append(f'<rect x="{x}" y="{HEIGHT + 8}" width="10" height="10" fill="{colour}"/>')
        keys.append(f'<text x="{x + 16}" y="{HEIGHT + 17}">{html.escape(name)}</text>')
    style = ".grid { stroke: #8a8f98; stroke-opacity: .35 } text { fill: #8a8f98; font: 12px system-ui, sans-serif }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 28}" role="img">'
        f"<title>{html.escape(plot.title)}</title><style>{style}</style>{_lines(plot)}{''.join(keys)}</svg>\n"
    )


def _drawn(plot: Plot) -> dict[str, Sequence[float]]:
    """Series of zeros are left out."""
    return {name: values for name, values in plot.series.items() if any(values)}


def _colours(plot: Plot) -> list[tuple[str, str]]:
    return list(zip(_drawn(plot), COLOURS * 3, strict=False))


def _lines(plot: Plot) -> str:
    """Grid, axes and lines; nothing if nothing was measured."""
    seconds, series = plot.seconds, _drawn(plot)
    if len(seconds) < 2 or not series:
        return ""
    highest = plot.top or _nice(max(max(values) for values in series.values()))
    first, last = seconds[0], seconds[-1]

    def x(at: float) -> float:
        return LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - min(value, highest) / highest * (HEIGHT - TOP - BOTTOM)

    parts = []
    for step in range(5):
        value = highest * step / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        label = f"{_short(value)}{plot.unit}"
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
        at = first + (last - first) * step / 4
        parts.append(f'<text x="{x(at):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{at:.0f} s</text>')
    for name, colour in _colours(plot):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(seconds, series[name], strict=True))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{points}"/>')
    return "".join(parts)


def _nice(value: float) -> float:
    """The next round number upwards."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= value)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
