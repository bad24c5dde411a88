"""The result of a scenario: figures with their aims, and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadtests.bench.figure import Figure
from loadtests.load.responses import OK, Responses
from loadtests.simulate.chart import Chart, Line, Point

BLUE, ORANGE, GREEN, RED, GREY = "#0b6bcb", "#d9541e", "#2e8540", "#c1121f", "#8a8f98"
ALL_RIGHT = 100.0
"""Required success rate in per cent."""
MOST_FAULTS = 5
"""Maximum number of different errors in the report."""


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The result of one scenario. `notes` are other findings, such as errors."""

    name: str
    description: str
    figures: Sequence[Figure]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def missed(self) -> bool:
        """Whether an aim is missed."""
        return any(figure.missed for figure in self.figures)


def figures_of(responses: Responses) -> list[Figure]:
    """Return the success rate, the rate of requests and their latency."""
    rate = len(responses) / (float(responses.due[-1]) or 1.0)
    return [
        Figure("requests", len(responses), ""),
        Figure("requests per second, average", rate, "1/s"),
        Figure("success rate", 100.0 * responses.success_rate, "%", ALL_RIGHT, least=True),
        Figure("latency, p50", responses.quantile(0.5), "ms"),
        Figure("latency, p99", responses.quantile(0.99), "ms"),
        Figure("latency, maximum", responses.quantile(1.0), "ms"),
    ]


def notes_of(responses: Responses) -> list[str]:
    """Return the most frequent errors."""
    return [f"{count} times: {fault}" for fault, count in responses.faults()[:MOST_FAULTS]]


def charts_of(responses: Responses) -> list[Chart]:
    """Return charts of the rate and the latency of requests by second, by their due time."""
    wrong = [number for number, status in enumerate(responses.status) if status != OK]
    failed = np.bincount(responses.due[wrong].astype(np.int64), minlength=int(responses.due[-1]) + 1)
    counted = np.bincount(responses.due.astype(np.int64))
    rates = [Line("due", BLUE, _points(counted.tolist())), Line("failed", RED, _points(failed.tolist()))]
    times = [
        Line(f"p{100 * share:g}", colour, _quantiles(responses, share), steps=False)
        for share, colour in ((0.99, ORANGE), (0.95, GREEN), (0.5, BLUE))
    ]
    return [Chart("Requests per second", "seconds", rates), Chart("Latency, ms", "seconds", times)]


def replicas_chart(seen: Sequence[Point]) -> Chart:
    """Return the chart of ready replicas over time."""
    return Chart("Ready replicas", "seconds", [Line("ready", BLUE, seen)])


def by_second(responses: Responses, value: Callable[[Responses], float]) -> list[Point]:
    """Return (second, value) for the requests that were due in each second, without seconds that have no requests."""
    seconds = responses.due.astype(np.int64)
    chosen = [(int(second), responses.between(second, second + 1)) for second in np.unique(seconds)]
    return [(second + 0.5, value(found)) for second, found in chosen]


def _quantiles(responses: Responses, share: float) -> list[Point]:
    points = by_second(responses, lambda found: found.quantile(share))
    return [(second, value) for second, value in points if value != float("inf")]


def _points(values: Sequence[int]) -> list[Point]:
    return [(float(second), float(value)) for second, value in enumerate(values)]
