"""Plots of a workload under several policies in one SVG image: replicas, queue, and the distribution of waits."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from loadtests.simulate.chart import INK, Chart, Line, Point
from loadtests.simulate.outcome import Outcome

WIDTH, HEIGHT, HEAD = 1_000, 260, 60
"""Pixels: width of the image, height of a panel, height of the header."""
COLOURS = ("#0b6bcb", "#d9541e", "#2e8540", "#8a8f98", "#7b4bb7", "#b58900")
FONT = "system-ui, sans-serif"
MOST_POINTS = 900
"""Maximum number of points of a line, about one per pixel."""
LETTER = 6.1  # px, average width of a letter in the legend
LEAST_WAIT = 0.01
"""Start of the axis of waits, in seconds."""


def picture(title: str, outcomes: Sequence[Outcome]) -> str:
    """Return the SVG document."""
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(outcomes))]
    charts = (
        Chart("Billed replicas", "minutes", _over_time(outcomes, colours, "replicas")),
        Chart("Queued requests", "minutes", _over_time(outcomes, colours, "queued")),
        Chart(
            "Share of the requests (%) that wait at most this long", "seconds", _waits(outcomes, colours),
            least_x=LEAST_WAIT, logarithmic=True, most_y=100.0,
        ),
    )  # fmt: skip
    panels = [
        element for number, chart in enumerate(charts) for element in chart.svg(HEAD + number * HEIGHT, WIDTH, HEIGHT)
    ]
    height = HEAD + len(charts) * HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="20" y="24" font-size="16" fill="{INK}">{escape(title)}</text>',
            *_legend(outcomes, colours),
            *panels,
            "</svg>\n",
        ]
    )


def _legend(outcomes: Sequence[Outcome], colours: Sequence[str]) -> list[str]:
    elements, x = [], 20.0
    for outcome, colour in zip(outcomes, colours, strict=True):
        text = f"{outcome.policy}: {outcome.immediate:.1%}, {outcome.hours:.1f} h"
        elements.append(f'<rect x="{x:.0f}" y="38" width="12" height="12" fill="{colour}"/>')
        elements.append(f'<text x="{x + 18:.0f}" y="49" font-size="12" fill="{INK}">{escape(text)}</text>')
        x += 18 + LETTER * len(text) + 24
    return elements


def _over_time(outcomes: Sequence[Outcome], colours: Sequence[str], what: str) -> list[Line]:
    return [
        Line(outcome.policy, colour, thinned(getattr(outcome.timeline, what)))
        for outcome, colour in zip(outcomes, colours, strict=True)
    ]


def thinned(values: Sequence[int]) -> list[Point]:
    """Return values by second as (minute, value) points, at most `MOST_POINTS`: the maximum of each interval."""
    stretch = -(-len(values) // MOST_POINTS) or 1
    return [(first / 60, float(max(values[first : first + stretch]))) for first in range(0, len(values), stretch)]


def _waits(outcomes: Sequence[Outcome], colours: Sequence[str]) -> list[Line]:
    longest = max([10 * LEAST_WAIT, *(float(outcome.waits.max()) for outcome in outcomes)])
    marks = np.geomspace(LEAST_WAIT, longest, MOST_POINTS // 2)
    lines = []
    for outcome, colour in zip(outcomes, colours, strict=True):
        waits = np.sort(outcome.waits)
        shares = 100.0 * np.searchsorted(waits, marks, side="right") / len(waits)
        lines.append(Line(outcome.policy, colour, list(zip(marks.tolist(), shares.tolist(), strict=True)), steps=False))
    return lines
