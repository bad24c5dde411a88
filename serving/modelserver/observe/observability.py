"""All that watches a server's requests: counts, access log, traces, payload log. What is off costs nothing.

The heavy parts are imported here, when the server is made, and only those that are on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from random import random
from typing import TYPE_CHECKING, Any, Final, TextIO

from starlette.types import ASGIApp

from clusters.net.exposition import Family
from serving.engines.base.engine import Cancellation
from serving.modelserver.base.assignment import ModelBounds
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.observability_options import ENDPOINTS, ObservabilityOptions, PayloadOptions
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.admission import Admission
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import Lifecycle
from serving.modelserver.execution.workers import Workers
from serving.modelserver.observe.access_log import AccessLog
from serving.modelserver.observe.metrics import Metrics, MetricsPage
from serving.modelserver.observe.observed import Observed
from serving.modelserver.observe.response_stats import AnswerStats

if TYPE_CHECKING:
    from serving.modelserver.observe.payload_log import PayloadLog
    from serving.modelserver.observe.tracing import Tracing

log = logging.getLogger(__name__)

PATIENCE: Final = 3.0  # s that the end of a server waits for collectors; Kubernetes grants 30 for all of it
INSTALL: Final = "pip install 'knodel[tracing]'"


class Observability:
    """One server's; made inside of its event loop. `out` takes the access log, `token` is of `Observed`."""

    def __init__(
        self, options: ObservabilityOptions, stats: Stats, out: TextIO, token: bytes = b"",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.token = token
        self.metrics = Metrics(monotonic)
        self._stats = stats
        self._monotonic = monotonic
        self._access_log = AccessLog(options.access_log, out, random) if options.access_log else None
        self._tracing = _tracing() if options.tracing else None
        self._payloads = _payload_log(options.payload_log) if options.payload_log else None
        self.page = MetricsPage(self.metrics, stats, self._families).text
        self.answers = AnswerStats(self.metrics, stats).to_json

    def assign(self, model: str, revision: str) -> None:
        """It is known what is served, or whose traces these are."""
        if self._tracing is not None:
            self._tracing.assign(model, revision)

    def logged(self, app: ASGIApp, model: str, revision: str) -> ASGIApp:
        """`app` of a model, whose payloads are logged if that is on."""
        return app if self._payloads is None else self._payloads.wrap(app, model, revision)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """`app` of the data port, watched."""
        if self._tracing is not None:
            from serving.modelserver.observe.tracing import Traced

            app = Traced(app, self._tracing)
        return Observed(app, self.metrics, self._access_log, self._monotonic, self.token)

    def inference(
        self, lifecycle: Lifecycle, admission: Admission, workers: Workers, bounds: ModelBounds, loop: AbstractEventLoop
    ) -> Inference:
        """What runs inferences, in batches and traced if that is on."""
        batcher = None
        if bounds.batching is not None:
            from serving.modelserver.execution.batcher import Batcher

            batcher = Batcher(bounds.batching, workers, loop, self.metrics.batch)
        if self._tracing is None:
            return Inference(lifecycle, admission, workers, bounds.timeout, loop, batcher)
        from serving.modelserver.observe.tracing import TracedInference

        return TracedInference(self._tracing, lifecycle, admission, workers, bounds.timeout, loop, batcher)

    def interceptors(self) -> Sequence[Any]:
        """Of a gRPC server, the outermost first; counts are told to `metrics` by its methods."""
        made: list[Any] = []
        if self._tracing is not None:
            from serving.modelserver.observe.grpc_tracing import TracingInterceptor

            made.append(TracingInterceptor(self._tracing))
        if self._access_log is not None:
            from serving.modelserver.observe.grpc_observed import AccessLogInterceptor

            made.append(AccessLogInterceptor(self._access_log, self._trace, self._monotonic))
        if self._payloads is not None:
            log.warning("the payload log has requests over HTTP only: those over gRPC are not in it")
        return made

    async def close(self) -> None:
        """Send what is left, within `PATIENCE`."""
        loop = asyncio.get_running_loop()
        closings = [part.close for part in (self._tracing, self._payloads, self._access_log) if part is not None]
        threads = Workers(len(closings), loop)
        if closings:
            await asyncio.wait([threads.submit(_last(close)).answer for close in closings], timeout=PATIENCE)
        threads.close()

    def _trace(self) -> str:
        """The id of the trace that this runs in, "" for none."""
        return "" if self._tracing is None else self._tracing.current_id()

    def _families(self) -> list[Family]:
        if self._payloads is None:
            return []
        counts = self._payloads.sender.counts
        results = (("sent", counts.sent), ("failed", counts.failed), ("dropped", counts.dropped))
        revision = self._stats.revision
        samples = tuple(({"revision": revision, "result": result}, float(count)) for result, count in results)
        return [Family("knodel_payload_events_total", "counter", "Events of the payload log.", samples)]


def _payload_log(options: PayloadOptions) -> PayloadLog:
    from serving.modelserver.observe.payload_log import PayloadLog
    from serving.modelserver.observe.payload_sender import PayloadSender

    return PayloadLog(options, PayloadSender(options.target), random)


def _tracing() -> Tracing | None:
    """None, and a warning, where the library is missing: a model is served without traces rather than not at all.

    Raises BadOptions.
    """
    try:
        from serving.modelserver.observe.tracing import Tracing, exporting
    except ImportError as error:
        log.warning("no traces are sent, %s is not installed: %s", error.name, INSTALL)
        return None
    try:
        return Tracing(exporting())
    except ValueError as error:
        raise BadOptions(f"OTEL_…: {error}: correct the variable, or unset {ENDPOINTS[1]}") from error


def _last(close: Callable[[float], None]) -> Callable[[Cancellation], None]:
    return lambda _: close(PATIENCE)
