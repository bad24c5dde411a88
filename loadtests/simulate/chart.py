"""One panel of a plot: axes, grid and lines as SVG text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 30, 40
"""Margins in pixels."""
GRID, INK = "#d8dde3", "#333a44"
FEWEST_TICKS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """Points from left to right, joined by straight lines, or by steps if `steps` is set."""

    label: str
    colour: str
    points: Sequence[Point]
    steps: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines in one panel. The x axis begins at `least_x` (above 0 if `logarithmic`), the y axis at 0."""

    title: str
    x: str
    lines: Sequence[Line]
    least_x: float = 0.0
    logarithmic: bool = False
    most_y: float | None = None

    def svg(self, top: float, width: float, height: float) -> Iterator[str]:
        """Yield the SVG elements of the panel, placed `top` pixels below the top of the image."""
        inner_width, inner_height = width - LEFT - RIGHT, height - TOP - BOTTOM
        most_x = max((x for line in self.lines for x, _ in line.points), default=1.0)
        most_x = max(most_x, 10 * self.least_x, 1e-9)
        most_y = self.most_y or max((y for line in self.lines for _, y in line.points), default=1.0) * 1.05 or 1.0

        def across(x: float) -> float:
            x = max(x, self.least_x)
            span = math.log(x / self.least_x) / math.log(most_x / self.least_x) if self.logarithmic else x / most_x
            return LEFT + inner_width * span

        def down(y: float) -> float:
            return top + TOP + inner_height * (1.0 - y / most_y)

        yield _text(LEFT, top + 18, self.title, "start", 14)
        for tick in ticks(most_y):
            yield _stroke(LEFT, down(tick), LEFT + inner_width, down(tick))
            yield _text(LEFT - 6, down(tick) + 4, f"{tick:g}", "end")
        for tick in decades(self.least_x, most_x) if self.logarithmic else ticks(most_x):
            yield _stroke(across(tick), top + TOP, across(tick), down(0.0))
            yield _text(across(tick), down(0.0) + 16, f"{tick:g}", "middle")
        yield _text(LEFT + inner_width, down(0.0) + 32, self.x, "end")
        for line in self.lines:
            points = [(across(x), down(y)) for x, y in line.points]
            yield (
                f'<path fill="none" stroke="{line.colour}" stroke-width="1.5" stroke-linejoin="round" '
                f'd="{_path(points, line.steps)}"><title>{escape(line.label)}</title></path>'
            )


def ticks(most: float) -> list[float]:
    """Return four to nine round numbers from 0 to `most`."""
    step = 10.0 ** math.floor(math.log10(most))
    for smaller in (1.0, 2.0, 5.0, 10.0):
        if most / (step / smaller) >= FEWEST_TICKS:
            step /= smaller
            break
    return [round(number * step, 10) for number in range(int(most / step + 1e-9) + 1)]


def decades(least: float, most: float) -> list[float]:
    """Return the powers of ten from `least` to `most`."""
    first, last = math.ceil(math.log10(least) - 1e-9), math.floor(math.log10(most) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def _path(points: Sequence[Point], steps: bool) -> str:
    """Return the commands of an SVG path. With `steps`, add a command only where the value changes and at the end."""
    texts: list[str] = []
    before = drawn = math.nan
    for x, y in points:
        if not texts:
            texts.append(f"M{x:.1f},{y:.1f}")
        elif not steps:
            texts.append(f"L{x:.1f},{y:.1f}")
        elif y != before:
            texts.append(f"H{x:.1f}V{y:.1f}")
            drawn = x
        before = y
    if steps and points and points[-1][0] != drawn:
        texts.append(f"H{points[-1][0]:.1f}")
    return "".join(texts)


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _stroke(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{GRID}"/>'
