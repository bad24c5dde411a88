"""What is counted of requests, and the page `/metrics` of the management port.

Counting is a few dictionary and list operations of the event loop, half a microsecond; the families are made when
somebody reads them, in the text format that the control plane's processes write too. Prometheus' own client is not
used: counting takes it ten times as long, its import a tenth of a second, and only its page would be needed here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from clusters.exposition import Buckets, Family, Histogram, Labels, process_families, render
from serving.server.stats import Stats

LATENCY_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Seconds: from the fastest answer of a small model to the longest time that a request may take by default."""
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MS: Final = 1000


class Observations:
    """Numbers counted by upper bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self, labels: Labels) -> Buckets:
        """As they are now."""
        return Buckets(labels, tuple(self._counts), self._sum)


class _Answers:
    __slots__ = ("codes", "latency")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.latency = Observations(LATENCY_BOUNDS)


class Metrics:
    """Answers by protocol and code, how long they took, and sizes of batches. Used by one event loop."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answers] = {}
        self._batches = Observations(BATCH_BOUNDS)

    def observe(self, protocol: str, code: int, seconds: float) -> None:
        """An answer: its status in the words of `protocol`, and the time from the request's head to its end."""
        answers = self._answers.get(protocol)
        if answers is None:
            answers = self._answers[protocol] = _Answers()
        answers.codes[code] = answers.codes.get(code, 0) + 1
        answers.latency.add(seconds)

    def batch(self, size: int) -> None:
        """An inference of so many requests at once."""
        self._batches.add(size)

    def families(self, revision: str) -> list[Family | Histogram]:
        """All of it, for the page."""
        counts = tuple(
            ({"revision": revision, "protocol": protocol, "code": str(code)}, float(count))
            for protocol, answers in self._answers.items()
            for code, count in answers.codes.items()
        )
        latencies = tuple(
            answers.latency.buckets({"revision": revision, "protocol": protocol})
            for protocol, answers in self._answers.items()
        )
        batches = (self._batches.buckets({"revision": revision}),)
        return [
            Family("knodel_requests_total", "counter", "Answers, by protocol and its status code.", counts),
            Histogram(
                "knodel_request_duration_seconds",
                "From a request's head to its answer's end.",
                LATENCY_BOUNDS,
                latencies,
            ),
            Histogram("knodel_batch_size", "Requests in one inference of the batcher.", BATCH_BOUNDS, batches),
        ]


class MetricsPage:
    """The page; `more` gives families that other parts of the server count."""

    def __init__(self, metrics: Metrics, stats: Stats, more: Callable[[], Iterable[Family]]) -> None:
        self._metrics = metrics
        self._stats = stats
        self._more = more

    def text(self) -> str:
        """As it is now."""
        revision = self._stats.revision
        counted = self._metrics.families(revision)
        return render([*counted, *stats_families(self._stats), *self._more(), *process_families()])


def stats_families(stats: Stats) -> list[Family]:
    """The page `/stats` for Prometheus. Stages of the start are disjoint: loading begins when the files are there."""
    labels = {"revision": stats.revision}
    startup = stats.startup
    stages = {
        "imports": startup.imports,
        "fetch": startup.fetch,
        "load": startup.load - startup.fetch,
        "warmup": startup.warmup,
    }
    gauges = (
        ("knodel_slots", "Requests that may be inside the model at once.", stats.slots),
        ("knodel_slots_busy", "Requests inside the model.", stats.active),
        ("knodel_queue_length", "Requests that wait for a slot.", stats.queued),
        ("knodel_model_loaded", "Whether the model is served.", int(startup.ready_at is not None)),
    )
    return [
        *(Family(name, "gauge", about, ((labels, float(value)),)) for name, about, value in gauges),
        Family(
            "knodel_busy_slot_seconds_total",
            "counter",
            "Integral of busy slots and of the queue over time.",
            ((labels, stats.busy_seconds),),
        ),
        Family(
            "knodel_load_seconds",
            "gauge",
            "Stages of the start.",
            tuple(({**labels, "stage": stage}, value / _MS) for stage, value in stages.items()),
        ),
    ]
