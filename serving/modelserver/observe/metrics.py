"""What is counted of requests, and the page `/metrics` of the management port.

Counting is a few dictionary and list operations of the event loop, half a microsecond; the families are made when
somebody reads them, in the text format that the control plane's processes write too. Prometheus' own client is not
used: counting takes it ten times as long, its import a tenth of a second, and only its page would be needed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusters.net.exposition import Buckets, Family, Histogram, Labels, process_families, render
from serving.modelserver.base.latency import LATENCY_BOUNDS, LATENCY_EDGES, BucketCounter, by_bound
from serving.modelserver.base.split import SplitStats
from serving.modelserver.base.stats import Stats

BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MS: Final = 1000


class Metrics:
    """Answers by protocol and code, how long they took, and sizes of batches. Used by one event loop.

    Times are counted between finer edges than the page has bounds: `answer_stats` reads the same counts in buckets.
    `split` counts the requests that the judge of a rollout counts; `monotonic` is the loop's time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.split = SplitStats(monotonic)
        self._answers: dict[str, dict[int, BucketCounter]] = {}
        self._batches = BucketCounter(BATCH_BOUNDS)

    def observe(self, protocol: str, code: int, seconds: float) -> None:
        """An answer: its status in the words of `protocol`, and the time from the request's head to its end."""
        try:
            self._answers[protocol][code].add(seconds)
        except KeyError:  # the first of its kind
            made = self._answers.setdefault(protocol, {})[code] = BucketCounter(LATENCY_EDGES)
            made.add(seconds)

    @property
    def answers(self) -> Mapping[str, Mapping[int, BucketCounter]]:
        """Times of answers in seconds, by protocol and code."""
        return self._answers

    def batch(self, size: int) -> None:
        """An inference of so many requests at once."""
        self._batches.add(size)

    def families(self, revision: str) -> list[Family | Histogram]:
        """All of it, for the page."""
        counts = tuple(
            ({"revision": revision, "protocol": protocol, "code": str(code)}, float(times.total))
            for protocol, codes in self._answers.items()
            for code, times in codes.items()
        )
        latencies = tuple(
            _latency({"revision": revision, "protocol": protocol}, codes.values())
            for protocol, codes in self._answers.items()
        )
        batches = (Buckets({"revision": revision}, tuple(self._batches.counts), self._batches.sum),)
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


def _latency(labels: Labels, times: Iterable[BucketCounter]) -> Buckets:
    """Of all codes together."""
    parts = list(times)
    counts = tuple(map(sum, zip(*(by_bound(part.counts) for part in parts), strict=True)))
    return Buckets(labels, counts, sum(part.sum for part in parts))


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
    """The page `/stats` for Prometheus, of all its parts."""
    parts = stats.parts
    gauges: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
        ("knodel_slots", "Requests that may be inside the model at once.", lambda part: part.slots),
        ("knodel_slots_busy", "Requests inside the model.", lambda part: part.active),
        ("knodel_queue_length", "Requests that wait for a slot.", lambda part: part.queued),
        ("knodel_model_loaded", "Whether the model is served.", lambda part: part.startup.ready_at is not None),
        ("knodel_model_memory_bytes", "By how much the model made the process grow.", lambda part: part.memory),
    )
    return [
        *(
            Family(name, "gauge", about, tuple((labels, float(value(part))) for labels, part in parts))
            for name, about, value in gauges
        ),
        Family(
            "knodel_busy_slot_seconds_total",
            "counter",
            "Integral of busy slots and of the queue over time.",
            tuple((labels, part.busy_seconds) for labels, part in parts),
        ),
        Family(
            "knodel_load_seconds",
            "gauge",
            "Stages of the start.",
            tuple(({**labels, "stage": stage}, ms / _MS) for labels, part in parts for stage, ms in _stages(part)),
        ),
    ]


def _stages(stats: Stats) -> Iterable[tuple[str, float]]:
    """Disjoint: loading begins when the files are there."""
    startup = stats.startup
    return (
        ("imports", startup.imports),
        ("fetch", startup.fetch),
        ("load", startup.load - startup.fetch),
        ("warmup", startup.warmup),
    )
