"""What the version that is served answered: the page `/stats/answers`.

The judge of a rollout reads the part `split`, the requests that the split sent here. The autoscaler reads the latency
of all requests.

Of the requests for an inference those whose answer may tell one version from another, as totals of this process:

    the wished answer; a caller that left    timed: so long it took, or had it taken when nobody waited any more
    400, 429, 5xx; gRPC's codes for them     an error: another version might have taken that input, had room, not failed
    all others, such as 404 and 413          not counted: every version says the same
"""

from __future__ import annotations

import secrets
from typing import Any, Final, Literal

from serving.modelserver.base.errors import BadRequest, ClientLeft, Overloaded
from serving.modelserver.base.latency import by_bucket
from serving.modelserver.base.stats import Stats
from serving.modelserver.observe.metrics import Metrics
from serving.modelserver.observe.observed import V1, V2

GRPC: Final = "grpc"
"""Protocol of inferences over gRPC."""
GRPC_OTHER: Final = "grpc-other"
"""Health and metadata over gRPC."""
_REFUSED: Final = 400  # from here on it is not the wished answer
_FAILED: Final = 500  # from here on it is the server's fault
_HTTP_ERRORS: Final = frozenset({BadRequest.status, Overloaded.status})
_GRPC_TIMED: Final = frozenset({0, 1})  # OK, CANCELLED
_GRPC_ERRORS: Final = frozenset({2, 3, 4, 8, 13, 14, 15})
"""UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS."""
_NAME_BYTES: Final = 8

Outcome = Literal["timed", "error", "other"]


class AnswerStats:
    """The page. `process` in it is a random name: totals under another one began at nothing."""

    def __init__(self, metrics: Metrics, stats: Stats) -> None:
        self._metrics = metrics
        self._stats = stats
        self._process = secrets.token_hex(_NAME_BYTES)

    def to_json(self) -> dict[str, Any]:
        """As it is now; `latency` has the numbers of timed answers by bucket (`clusters.base.latency_buckets`).

        `split` has the same of the requests that the judge of a rollout counts (`serving.modelserver.base.split`).
        """
        errors, latency = 0, dict[int, int]()
        for protocol, codes in self._metrics.answers.items():
            for code, times in codes.items():
                outcome = outcome_of(protocol, code)
                if outcome == "error":
                    errors += times.total
                elif outcome == "timed":
                    for bucket, count in by_bucket(times.counts).items():
                        latency[bucket] = latency.get(bucket, 0) + count
        return {
            "revision": self._stats.revision,
            "process": self._process,
            "requests": errors + sum(latency.values()),
            "errors": errors,
            "latency": {str(bucket): latency[bucket] for bucket in sorted(latency)},
            "split": self._metrics.split.to_json(),
        }


def outcome_of(protocol: str, code: int) -> Outcome:
    """What an answer says of the version that gave it."""
    if protocol == GRPC:
        return "timed" if code in _GRPC_TIMED else "error" if code in _GRPC_ERRORS else "other"
    if protocol not in (V1, V2):
        return "other"
    if code < _REFUSED or code == ClientLeft.status:
        return "timed"
    return "error" if code >= _FAILED or code in _HTTP_ERRORS else "other"
