"""Request metrics, and the page `/metrics` of the management port.

Counting is a few dictionary and list operations in the event loop and takes half a microsecond. The metric families are
built when the page is read, in the text format that the control plane's processes use too. The Prometheus client
library is not used: it counts ten times as slowly, its import takes 0.1 s, and only its page would be needed here.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusters.net.exposition import Buckets, Exemplar, Family, Histogram, process_families
from serving.engines.base.trace_context import sampled_ids
from serving.modelserver.base.latency import LATENCY_BOUNDS, LATENCY_EDGES, BucketCounter, by_bound
from serving.modelserver.base.split import SplitStats
from serving.modelserver.base.stats import StartupTimes, Stats
from serving.modelserver.observe.gpus import gpu_families

BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MS: Final = 1000


class RequestMetrics:
    """Counts responses by protocol and code, their durations, and batch sizes. Only the event loop may use it.

    Durations have finer buckets than the page, because `response_stats` reads the same counts. `split` counts the
    requests that the judge of a rollout counts. `latencies` are the times by which responses are judged, by protocol
    and status code, for protocols whose durations depend on the caller. `serves_own_paths` is whether the model itself
    answers all paths. `current_trace` returns the `traceparent` of the request in progress, "" if it is not traced.
    `monotonic` is the loop's time, `clock` the seconds since 1970.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, clock: Callable[[], float] = time.time) -> None:
        self.split = SplitStats(monotonic)
        self.serves_own_paths = False
        self.current_trace: Callable[[], str] = str
        self._clock = clock
        self._exemplars: dict[str, list[Exemplar | None]] = {}
        self.latencies: dict[str, dict[int, BucketCounter]] = {}
        self._durations: dict[str, dict[int, BucketCounter]] = {}
        self._batches = BucketCounter(BATCH_BOUNDS)

    def observe(self, protocol: str, code: int, seconds: float, traceparent: str | None = None) -> None:
        """Count a response: its status code in `protocol`, and the seconds from request head to response end.

        `traceparent` is as `current_trace`, which is called for None. The newest request of each bucket whose spans are
        sent is its exemplar.
        """
        try:
            self._durations[protocol][code].add(seconds)
        except KeyError:  # the first with this protocol and code
            made = self._durations.setdefault(protocol, {})[code] = BucketCounter(LATENCY_EDGES)
            made.add(seconds)
        if ids := sampled_ids(self.current_trace() if traceparent is None else traceparent):
            kept = self._exemplars.setdefault(protocol, [None] * (len(LATENCY_BOUNDS) + 1))
            kept[bisect_left(LATENCY_BOUNDS, seconds)] = Exemplar(*ids, seconds, self._clock())

    def observe_latency(self, protocol: str, code: int, seconds: float | None) -> None:
        """Count the time by which a response is judged in place of its duration; None if it has no known time."""
        counted = self.latencies.setdefault(protocol, {})
        if seconds is not None:
            counted.setdefault(code, BucketCounter(LATENCY_EDGES)).add(seconds)

    @property
    def durations(self) -> Mapping[str, Mapping[int, BucketCounter]]:
        """Durations of responses in seconds, by protocol and code."""
        return self._durations

    def batch(self, size: int) -> None:
        """Count a batch of `size` requests."""
        self._batches.add(size)

    def families(self, revision: str) -> list[Family | Histogram]:
        """Return the metric families for the page."""
        counts = tuple(
            ({"revision": revision, "protocol": protocol, "code": str(code)}, float(times.total))
            for protocol, codes in self._durations.items()
            for code, times in codes.items()
        )
        latencies = []
        for protocol, codes in self._durations.items():  # one histogram for all status codes
            buckets = tuple(map(sum, zip(*(by_bound(times.counts) for times in codes.values()), strict=True)))
            labels = {"revision": revision, "protocol": protocol}
            seconds = sum(times.sum for times in codes.values())
            latencies.append(Buckets(labels, buckets, seconds, tuple(self._exemplars.get(protocol, ()))))
        batches = (Buckets({"revision": revision}, tuple(self._batches.counts), self._batches.sum),)
        return [
            Family("knodel_requests_total", "counter", "Responses by protocol and status code.", counts),
            Histogram(
                "knodel_request_duration_seconds",
                "Time from the head of a request to the end of its response, in seconds.",
                LATENCY_BOUNDS,
                tuple(latencies),
            ),
            Histogram("knodel_batch_size", "Requests in a batch.", BATCH_BOUNDS, batches),
        ]


class MetricsPage:
    """The page `/metrics`. `more` returns the metric families of other parts of the server."""

    def __init__(self, metrics: RequestMetrics, stats: Stats, more: Callable[[], Iterable[Family | Histogram]]) -> None:
        self._metrics = metrics
        self._stats = stats
        self._more = more

    def families(self) -> list[Family | Histogram]:
        """Return the current content of the page."""
        counted = self._metrics.families(self._stats.revision)
        return [
            *counted, *stats_families(self._stats), *gpu_families(self._stats), *self._more(), *process_families()
        ]  # fmt: skip


def stats_families(stats: Stats) -> list[Family]:
    """Return the content of the page `/stats` as metric families, for each model."""

    def stages(startup: StartupTimes) -> Iterable[tuple[str, float]]:
        loading = startup.load - startup.fetch  # so that the stages are disjoint
        return ("imports", startup.imports), ("fetch", startup.fetch), ("load", loading), ("warmup", startup.warmup)

    parts = stats.parts
    gauges: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
        ("knodel_slots", "Maximum number of concurrent inferences of the model.", lambda part: part.slots),
        ("knodel_slots_busy", "Inferences in progress.", lambda part: part.busy),
        ("knodel_queue_length", "Requests waiting for a slot.", lambda part: part.waiting),
        ("knodel_model_loaded", "1 if the model is loaded, else 0.", lambda part: part.startup.ready_at is not None),
        (
            "knodel_model_memory_bytes",
            "Memory growth of the process by the model, in bytes.",
            lambda part: part.memory,
        ),
    )
    shares = tuple((labels, part.kv_share) for labels, part in parts if part.kv_share is not None)
    kv_cache = Family("knodel_llm_kv_share", "gauge", "Part of the KV cache in use, from 0 to 1.", shares)
    counts = tuple(
        ({**labels, "kind": kind}, float(count))
        for labels, part in parts
        if part.tokens is not None
        for kind, count in part.tokens.total.to_json().items()
    )
    tokens = Family("knodel_llm_tokens_total", "counter", "Tokens of prompts and of completions.", counts)
    return [
        *([kv_cache] if shares else []),
        *([tokens] if counts else []),
        *(
            Family(name, "gauge", about, tuple((labels, float(value(part))) for labels, part in parts))
            for name, about, value in gauges
        ),
        Family(
            "knodel_busy_slot_seconds_total",
            "counter",
            "Slot-seconds of inferences and of queued requests.",
            tuple((labels, part.busy_seconds) for labels, part in parts),
        ),
        Family(
            "knodel_load_seconds",
            "gauge",
            "Duration of each stage of the start, in seconds.",
            tuple(
                ({**labels, "stage": stage}, ms / _MS) for labels, part in parts for stage, ms in stages(part.startup)
            ),
        ),
    ]
