"""Compose a server's metrics, access log, traces and payload log. Parts that are off cost nothing.

Heavy modules are imported here, when the server is created, and only for the parts that are on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any, Final, TextIO

from starlette.types import ASGIApp

from clusters.net.exposition import Family, Histogram
from clusters.net.otlp.environment import ENDPOINT
from clusters.net.otlp.starting import start_metrics_export
from serving.modelserver.base.assignment import BatchBounds, ModelBounds
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.observability_options import ObservabilityOptions
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from serving.modelserver.observe.access_log import AccessLog
from serving.modelserver.observe.metrics import MetricsPage, RequestMetrics
from serving.modelserver.observe.middleware import ObservabilityMiddleware
from serving.modelserver.observe.response_stats import ResponseStats
from serving.modelserver.openai.metrics import LlmMetrics

if TYPE_CHECKING:
    from clusters.net.otlp.metrics import PeriodicMetrics
    from serving.modelserver.execution.batcher import Batcher
    from serving.modelserver.observe.payload_log import PayloadLog
    from serving.modelserver.observe.tracing import Tracing

log = logging.getLogger(__name__)

CLOSE_TIMEOUT: Final = 3.0  # s that a stopping server waits for collectors; Kubernetes grants 30 s for the whole stop


class Observability:
    """The observability of one server. Create it inside the event loop.

    The access log is written to `out`. `token` is that of `ObservabilityMiddleware`.
    """

    def __init__(
        self, options: ObservabilityOptions, stats: Stats, out: TextIO, token: bytes = b"",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.token = token
        self.metrics = RequestMetrics(monotonic)
        self.llm = LlmMetrics()
        self._stats = stats
        self._monotonic = monotonic
        self._access_log = AccessLog(options.access_log, out, random) if options.access_log else None
        self._tracing = _make_tracing() if options.tracing else None
        if self._tracing is not None:
            self.metrics.current_trace = self._tracing.current_parent
        self._metrics_interval = options.metrics_interval
        self._export: PeriodicMetrics | None = None
        self._payloads: PayloadLog | None = None
        if options.payload_log:
            from serving.modelserver.observe.payload_log import PayloadLog
            from serving.modelserver.observe.payload_sender import PayloadSender

            self._payloads = PayloadLog(options.payload_log, PayloadSender(options.payload_log.target), random)
        self.families = MetricsPage(self.metrics, stats, self._families).families
        self.response_stats = ResponseStats(self.metrics, stats).to_json

    def assign(self, model: str, revision: str) -> None:
        """Label traces with this model and revision from now on, and export metrics if a collector is configured."""
        if self._tracing is not None:
            self._tracing.assign(model, revision)
        if self._metrics_interval and self._export is None:
            self._export = start_metrics_export(self.families, self._metrics_interval, model, revision)

    def log_payloads(self, app: ASGIApp, model: str, revision: str) -> ASGIApp:
        """Return the `app` of a model, with a payload log if that is on."""
        if self._payloads is None:
            return app
        return self._payloads.wrap(app, model, revision, lambda: self.metrics.serves_own_paths)

    def instrument(self, app: ASGIApp) -> ASGIApp:
        """Return the `app` of the data port with metrics, access log and traces."""
        if self._tracing is not None:
            from serving.modelserver.observe.tracing import TracingMiddleware

            app = TracingMiddleware(app, self._tracing, lambda: self.metrics.serves_own_paths, self._monotonic)
        return ObservabilityMiddleware(app, self.metrics, self._access_log, self._monotonic, self.token)

    def inference(
        self,
        lifecycle: ModelLifecycle,
        slots: SlotQueue,
        workers: Workers,
        bounds: ModelBounds,
        loop: AbstractEventLoop,
    ) -> Inference:
        """Return the inference of a model, with batches if configured, and traced if that is on."""
        batcher = None if bounds.batching is None else self.batcher(bounds.batching, workers, loop)
        if self._tracing is None:
            return Inference(lifecycle, slots, workers, bounds.timeout, loop, batcher)
        from serving.modelserver.observe.tracing import TracedInference

        return TracedInference(self._tracing, lifecycle, slots, workers, bounds.timeout, loop, batcher)

    def batcher(self, batching: BatchBounds, workers: Workers, loop: AbstractEventLoop) -> Batcher:
        """Return the batcher of a model."""
        from serving.modelserver.execution.batcher import Batcher

        return Batcher(batching, workers, loop, self.metrics.batch)

    def interceptors(self) -> Sequence[Any]:
        """Return the interceptors of a gRPC server, the outermost first. Its methods count in `metrics` themselves."""
        made: list[Any] = []
        if self._tracing is not None:
            from serving.modelserver.observe.grpc_tracing import TracingInterceptor

            made.append(TracingInterceptor(self._tracing))
        if self._access_log is not None:
            from serving.modelserver.observe.grpc_access_log import AccessLogInterceptor

            trace = (lambda: "") if self._tracing is None else self._tracing.current_id
            made.append(AccessLogInterceptor(self._access_log, trace, self._monotonic))
        if self._payloads is not None:
            log.warning("the payload log covers only requests over HTTP: those over gRPC are not in it")
        return made

    async def close(self) -> None:
        """Send the remaining spans, payloads and log lines, within `CLOSE_TIMEOUT` seconds."""
        parts = (self._tracing, self._payloads, self._access_log, self._export)
        closing = [part for part in parts if part is not None]
        threads = Workers(len(closing), asyncio.get_running_loop())

        def close(part: Tracing | PayloadLog | AccessLog | PeriodicMetrics, _: object) -> None:
            part.close(CLOSE_TIMEOUT)

        if closing:
            await asyncio.wait([threads.submit(partial(close, part)).result for part in closing], timeout=CLOSE_TIMEOUT)
        threads.close()

    def _families(self) -> list[Family | Histogram]:
        return [*self.llm.families(self._stats.revision), *self._payload_families()]

    def _payload_families(self) -> list[Family]:
        if self._payloads is None:
            return []
        counts = self._payloads.sender.counts
        results = (("sent", counts.sent), ("failed", counts.failed), ("dropped", counts.dropped))
        revision = self._stats.revision
        samples = tuple(({"revision": revision, "result": result}, float(count)) for result, count in results)
        return [Family("knodel_payload_events_total", "counter", "Events of the payload log.", samples)]


def _make_tracing() -> Tracing | None:
    """Return the tracing; None with a warning where its library is missing, so that models are served without traces.

    Raises BadOptions for an invalid variable of OpenTelemetry.
    """
    try:
        from clusters.net.otlp.export import span_processor
        from serving.modelserver.observe.tracing import Tracing
    except ImportError as error:
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        log.warning("no traces are sent, %s is not installed: %s", error.name, install_command("knodel[tracing]"))
        return None
    try:
        return Tracing(span_processor())
    except ValueError as error:
        raise BadOptions(f"OTEL_…: {error}: correct the variable, or unset {ENDPOINT}") from error
