"""One load and what came of it: the figures beside their aims, and the plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadtests.bench.figure import Figure
from loadtests.load.answers import OK, Answers
from loadtests.simulate.chart import Chart, Line, Point

BLUE, ORANGE, GREEN, RED, GREY = "#0b6bcb", "#d9541e", "#2e8540", "#c1121f", "#8a8f98"
ALL_RIGHT = 100.0
"""Per cent."""
MOST_FAULTS = 5
"""Kinds of failures that are told."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`story`: what was done, in a sentence or two; `notes`: what besides is worth knowing, such as errors."""

    name: str
    story: str
    figures: Sequence[Figure]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def missed(self) -> bool:
        """Whether an aim is."""
        return any(figure.missed for figure in self.figures)


def figures_of(answers: Answers) -> list[Figure]:
    """That every request was answered rightly, and how soon."""
    asked = len(answers) / (float(answers.due[-1]) or 1.0)
    return [
        Figure("requests", len(answers), ""),
        Figure("asked a second, on average", asked, "1/s"),
        Figure("answered rightly", 100.0 * answers.right, "%", ALL_RIGHT, least=True),
        Figure("an answer, p50", answers.quantile(0.5), "ms"),
        Figure("an answer, p99", answers.quantile(0.99), "ms"),
        Figure("an answer, slowest", answers.quantile(1.0), "ms"),
    ]


def notes_of(answers: Answers) -> list[str]:
    """What went wrong."""
    return [f"{count} times: {fault}" for fault, count in answers.faults()[:MOST_FAULTS]]


def charts_of(answers: Answers) -> list[Chart]:
    """Requests and times by second, by when they were due."""
    wrong = [number for number, status in enumerate(answers.status) if status != OK]
    failed = np.bincount(answers.due[wrong].astype(np.int64), minlength=int(answers.due[-1]) + 1)
    counted = np.bincount(answers.due.astype(np.int64))
    rates = [Line("due", BLUE, _points(counted.tolist())), Line("failed", RED, _points(failed.tolist()))]
    times = [
        Line(f"p{100 * share:g}", colour, _quantiles(answers, share), steps=False)
        for share, colour in ((0.99, ORANGE), (0.95, GREEN), (0.5, BLUE))
    ]
    return [Chart("Requests a second", "seconds", rates), Chart("Time of an answer, ms", "seconds", times)]


def replicas_chart(seen: Sequence[Point]) -> Chart:
    """Over time."""
    return Chart("Replicas ready", "seconds", [Line("ready", BLUE, seen)])


def by_second(answers: Answers, value: Callable[[Answers], float]) -> list[Point]:
    """(second, value) of those that were due in it; seconds without a request are left out."""
    seconds = answers.due.astype(np.int64)
    chosen = [(int(second), answers.between(second, second + 1)) for second in np.unique(seconds)]
    return [(second + 0.5, value(found)) for second, found in chosen]


def _quantiles(answers: Answers, share: float) -> list[Point]:
    points = by_second(answers, lambda found: found.quantile(share))
    return [(second, value) for second, value in points if value != float("inf")]


def _points(values: Sequence[int]) -> list[Point]:
    return [(float(second), float(value)) for second, value in enumerate(values)]
