"""Statistics of the requests that the traffic split sent here, the only ones that the judge of a rollout counts.

A caller that could choose the version could decide a rollout. So a request counts only if the ingress routed it by the
percentages of the traffic. Its headers show that (knative/serving `pkg/reconciler/route/resources/ingress.go`,
with `tag-header-based-routing`, which every Model with a rollout needs):

    request                                 Knative-Serving-Default-Route    Knative-Serving-Tag     counts
    to the Model's host                     true, set by the ingress         -                       yes
    to a tag's host                         whatever the caller sent         set by the ingress      no
    to the Model's host, with a tag header  whatever the caller sent         sent by the caller      no
    a copy of a request (host `…-shadow`)   true                             -                       no
    to a replica, a probe                   -                                -                       no

A caller can exclude its own requests from the counts. It cannot add requests or choose the version.

On one machine every user can connect to a replica. There a request with these headers counts only if it passed the
gateway, which adds a token to its headers (`clusters.gateway.token`).

The outcome of a request that counts is one of:

    status below 400          answered
    status 500 and above      error: a failure of the version
    status 400 to 498         refused: a mistake of the caller, or a limit of the server
    no response               left: the caller disconnected after waiting for the recorded time

Latency is measured from the complete request to the response, so that slow senders and readers do not count against a
version. It includes the wait for a slot, except a wait behind requests that do not count. Such a wait, or an error
because no slot became free, is not attributed to the version. Otherwise requests to a tag, which fill the slots of one
version, could decide a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from contextvars import ContextVar
from typing import Any, Final, Literal

from clusters.base.latency_buckets import bucket_of
from clusters.gateway.token import HEADER, is_valid
from clusters.net.server.errors import RECEIVED_KEY
from serving.modelserver.base.errors import ClientLeft, InvalidRequest, ModelFailed
from serving.modelserver.base.latency import LATENCY_EDGES, BucketCounter, by_bucket

TAG: Final = b"knative-serving-tag"
DEFAULT_ROUTE: Final = b"knative-serving-default-route"
HOST: Final = b"host"
TOKEN: Final = HEADER.lower().encode()
_HEADERS: Final = frozenset({TAG, DEFAULT_ROUTE, HOST, TOKEN})
MIRROR_SUFFIX: Final = b"-shadow"
"""Suffix that Envoy and Istio append to the host of a mirrored request."""
PRODUCED_KEY: Final = "knodel.produced"
"""Key of the ASGI scope: when (the loop's time) the model had made all parts of a stream, less waits for the caller."""

Outcome = Literal["answered", "error", "refused", "left"]
Headers = Iterable[tuple[bytes, bytes]]


def is_of_split(headers: Headers, token: bytes = b"") -> bool:
    """Return whether the ingress chose the version of a request with these headers (names in lower case).

    `token` is this server's (`clusters.gateway.token`), empty where only the ingress can reach it.
    """
    by_default, sent = False, b""
    for name, value in headers:
        if name not in _HEADERS:
            continue
        if name == TAG or (name == HOST and value.partition(b":")[0].endswith(MIRROR_SUFFIX)):
            return False
        if name == DEFAULT_ROUTE:
            by_default = value == b"true"
        elif name == TOKEN:
            sent = value
    return by_default and (not token or is_valid(sent, token))


def without_token(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers without the gateway's token, which applications must not see."""
    return [pair for pair in headers if pair[0] != TOKEN]


def outcome_of(status: int) -> Outcome:
    """Return the outcome of a response with this HTTP status."""
    if status == ClientLeft.status:
        return "left"
    if status < InvalidRequest.status:
        return "answered"
    return "error" if status >= ModelFailed.status else "refused"


class InFlight:
    """A request that counts and has no response yet.

    `waits_for_others` is true while it waits for a slot behind requests that do not count. `slot_at` is the loop's time
    at which such a wait ended.
    """

    __slots__ = ("answered_at", "scope", "slot_at", "started_at", "waits_for_others")

    def __init__(self, scope: MutableMapping[str, Any], started_at: float) -> None:
        self.scope = scope
        self.started_at = started_at
        self.answered_at: float | None = None
        self.waits_for_others = False
        self.slot_at = started_at

    @property
    def began(self) -> float | None:
        """Return when the version's own time began; None before the request is complete, or behind uncounted ones."""
        received: float | None = self.scope.get(RECEIVED_KEY)
        return None if received is None or self.waits_for_others else max(received, self.slot_at)


CURRENT: Final[ContextVar[InFlight | None]] = ContextVar("CURRENT", default=None)
"""The entry of the request that this task serves; None if it does not count."""


class SplitStats:
    """Totals of the requests from the split. Used by one event loop, whose time `monotonic` returns."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._in_flight: set[InFlight] = set()
        self._times = BucketCounter(LATENCY_EDGES)
        self._answered = 0
        self._errors = 0
        self._refused = 0
        self._left = 0

    def begin(self, scope: MutableMapping[str, Any], now: float) -> InFlight:
        """Return the entry of a new request; the caller must pass every entry to `end`."""
        entry = InFlight(scope, now)
        self._in_flight.add(entry)
        return entry

    def end(self, entry: InFlight, status: int, now: float) -> None:
        """Count the request by the HTTP status of its response."""
        self._in_flight.discard(entry)
        outcome, began = outcome_of(status), entry.began
        if outcome == "error" and entry.waits_for_others:
            outcome = "refused"
        if outcome == "error":
            self._errors += 1
        elif outcome == "refused":
            self._refused += 1
        elif began is not None or outcome == "answered":
            ended = entry.scope.get(PRODUCED_KEY) or entry.answered_at or now
            self._times.add(max(ended - (entry.started_at if began is None else began), 0.0))
            self._left += outcome == "left"
            self._answered += outcome == "answered"

    def to_json(self) -> dict[str, Any]:
        """Return the totals, and the requests in flight by age in buckets of `clusters.base.latency_buckets`."""
        now = self._monotonic()
        ages = [
            now - began for entry in self._in_flight if entry.answered_at is None and (began := entry.began) is not None
        ]
        pending: dict[int, int] = {}
        for age in ages:
            bucket = bucket_of(age)
            pending[bucket] = pending.get(bucket, 0) + 1
        return {
            "requests": self._answered + self._errors,
            "errors": self._errors,
            "refused": self._refused,
            "left": self._left,
            "latency": _by_name(by_bucket(self._times.counts)),
            "pending": _by_name(pending),
            "oldest": round(max(ages, default=0.0), 3),
        }


def _by_name(counts: Any) -> dict[str, int]:
    return {str(bucket): counts[bucket] for bucket in sorted(counts)}
