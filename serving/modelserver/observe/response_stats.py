"""The page `/stats/answers`: latency and errors of the served version.

The judge of a rollout reads the part `split`, which counts the requests that the traffic split sent here. The
autoscaler reads the latency of all requests.

The page has totals of this process. It counts inference requests whose responses may differ between versions:

    success; the client disconnected         timed: the duration until the response, or until the disconnect
    400, 429, 5xx; gRPC's codes for them     error: another version might accept the input, have capacity, not fail
    all others, such as 404 and 413          not counted: every version gives the same response

Answers of a language model are timed until their first token (`serving.modelserver.base.split`). Those whose first
token has no known time are requests without a latency.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, Literal

from serving.modelserver.base.errors import ClientLeft, InvalidRequest, Overloaded
from serving.modelserver.base.latency import by_bucket
from serving.modelserver.base.stats import Stats
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.middleware import APPLICATION, MLFLOW, OPENAI, V1, V2

GRPC: Final = "grpc"
"""Protocol label of inferences over gRPC."""
GRPC_OTHER: Final = "grpc-other"
"""Protocol label of health and metadata over gRPC."""
_REFUSED: Final = 400  # lowest HTTP status of an error
_FAILED: Final = 500  # lowest HTTP status of a server error
_HTTP_ERRORS: Final = frozenset({InvalidRequest.status, Overloaded.status})
_GRPC_TIMED: Final = frozenset({0, 1})  # OK, CANCELLED
_GRPC_ERRORS: Final = frozenset({2, 3, 4, 8, 13, 14, 15})
"""UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS."""
_COUNTED: Final = (V1, V2, MLFLOW, OPENAI, APPLICATION, GRPC)
"""Protocol labels of inferences."""
_NAME_BYTES: Final = 8
PROTOCOLS: Final = "|".join(_COUNTED)
ERRORS: Final = "|".join(["5..", *map(str, sorted(_HTTP_ERRORS | _GRPC_ERRORS))])
REQUESTS: Final = "|".join([ERRORS, "[123]..", *map(str, (ClientLeft.status, *sorted(_GRPC_TIMED)))])
"""Patterns for the labels `protocol` and `code` of `knodel_requests_total`: of what the page counts, in all, as errors,
and as requests."""

Outcome = Literal["timed", "error", "other"]


class ResponseStats:
    """The page. Its `process` is a random name: when it changes, the totals restarted from zero."""

    def __init__(self, metrics: RequestMetrics, stats: Stats) -> None:
        self._metrics = metrics
        self._stats = stats
        self._process = secrets.token_hex(_NAME_BYTES)

    def to_json(self) -> dict[str, Any]:
        """Return the current content of the page.

        `latency` has the number of timed responses in each bucket (`clusters.base.latency_buckets`). `split` has the
        same counts for the requests that the judge of a rollout counts (`serving.modelserver.base.split`).
        """
        errors, timed, latency = 0, 0, dict[int, int]()
        for protocol, codes in self._metrics.durations.items():
            for code, times in codes.items():
                outcome = outcome_of(protocol, code)
                if outcome == "error":
                    errors += times.total
                elif outcome == "timed":
                    timed += times.total
                    judged = self._metrics.latencies.get(protocol)
                    counted = times if judged is None else judged.get(code)
                    for bucket, count in by_bucket(counted.counts).items() if counted else ():
                        latency[bucket] = latency.get(bucket, 0) + count
        return {
            "revision": self._stats.revision,
            "process": self._process,
            "requests": errors + timed,
            "errors": errors,
            "latency": {str(bucket): latency[bucket] for bucket in sorted(latency)},
            "split": self._metrics.split.to_json(),
        }


def outcome_of(protocol: str, code: int) -> Outcome:
    """Return how a response counts for the version that sent it."""
    if protocol == GRPC:
        return "timed" if code in _GRPC_TIMED else "error" if code in _GRPC_ERRORS else "other"
    if protocol not in _COUNTED:
        return "other"
    if code < _REFUSED or code == ClientLeft.status:
        return "timed"
    return "error" if code >= _FAILED or code in _HTTP_ERRORS else "other"
