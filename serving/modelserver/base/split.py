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

How long a whole answer of a language model takes depends on the caller's `max_tokens`. So such an answer is judged on
its first token and on the mean time between its tokens (`TokenTimes`):

    answer                                            latency                   in flight
    a stream                                          until the first token     until the first token
    a stream, the caller left before the first token  until then                until then
    no stream, the engine reports its own times       until the first token     without an age
    no stream otherwise, or no token at all           none: counts as untimed   without an age

The engine's own times are only read at OpenAI's and Anthropic's paths. Each event of the generate extension is a token.
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
TOKENS_KEY: Final = "knodel.tokens"
"""Key of the ASGI scope: the `TokenTimes` of an answer that is judged on its tokens."""

MOST_BLOCKED: Final = 0.05
"""Part of a stream's time for which its caller may not read. Beyond it, the time between its tokens is not judged."""

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


class TokenTimes:
    """The times of an answer that is judged on its tokens.

    `streamed` is whether the first token is seen when it comes. `first` is when (the loop's time) it came, None as long
    as that is unknown. `between` is the mean time between two tokens in seconds, None for fewer than two.
    """

    __slots__ = ("_last", "_seen", "between", "first", "streamed")

    def __init__(self, streamed: bool) -> None:
        self.streamed = streamed
        self.first: float | None = None
        self.between: float | None = None
        self._last = 0.0
        self._seen = 0

    def observe(self, now: float) -> None:
        """Note that a token of the stream came `now`."""
        self.first = now if self.first is None else self.first
        self._last = now
        self._seen += 1

    def end(self, blocked: float) -> None:
        """Set `between` of the noted tokens, unless the stream waited too long for its caller, `blocked` seconds."""
        took = 0.0 if self.first is None else self._last - self.first
        if took > 0.0 and blocked <= MOST_BLOCKED * took:
            self.between = took / (self._seen - 1)

    def latency(self, began: float, status: int, now: float) -> float | None:
        """Return the seconds from `began` to the first token; None if they are unknown.

        Of a stream whose caller left before the first token they are the seconds until `now`, a lower bound.
        """
        until = self.first
        if until is None and self.streamed and outcome_of(status) == "left":
            until = now
        return None if until is None else max(until - began, 0.0)


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

    def age(self, now: float) -> float | None:
        """Return the seconds since the version's own time began; None if it has not begun, or is over.

        An answer that is judged on its tokens but is no stream has the age 0: its first token may have come already.
        """
        tokens: TokenTimes | None = self.scope.get(TOKENS_KEY)
        began = self.began
        if began is None:
            return None
        if tokens is not None and tokens.streamed:
            return now - began if tokens.first is None else None
        if self.answered_at is not None:
            return None
        return now - began if tokens is None else 0.0

    def latency(self, status: int, now: float) -> float | None:
        """Return the seconds by which the version is judged, of a response that ended `now`; None if it has none."""
        began = self.started_at if self.began is None else self.began
        tokens: TokenTimes | None = self.scope.get(TOKENS_KEY)
        if tokens is not None:
            return tokens.latency(began, status, now)
        ended: float = self.scope.get(PRODUCED_KEY) or self.answered_at or now
        return max(ended - began, 0.0)


CURRENT: Final[ContextVar[InFlight | None]] = ContextVar("CURRENT", default=None)
"""The entry of the request that this task serves; None if it does not count."""


class SplitStats:
    """Totals of the requests from the split. Used by one event loop, whose time `monotonic` returns."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._in_flight: set[InFlight] = set()
        self._times = BucketCounter(LATENCY_EDGES)
        self._between_tokens = BucketCounter(LATENCY_EDGES)
        self._untimed = 0
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
        outcome = outcome_of(status)
        if outcome == "error" and entry.waits_for_others:
            outcome = "refused"
        if outcome == "error":
            self._errors += 1
        elif outcome == "refused":
            self._refused += 1
        elif entry.began is not None or outcome == "answered":
            self._count_times(entry, status, now)
            self._left += outcome == "left"
            self._answered += outcome == "answered"

    def _count_times(self, entry: InFlight, status: int, now: float) -> None:
        latency = entry.latency(status, now)
        if latency is None:
            self._untimed += 1
        else:
            self._times.add(latency)
        tokens: TokenTimes | None = entry.scope.get(TOKENS_KEY)
        if tokens is not None and tokens.between is not None:
            self._between_tokens.add(tokens.between)

    def to_json(self) -> dict[str, Any]:
        """Return the totals, and the requests in flight by age in buckets of `clusters.base.latency_buckets`.

        `untimed` and `interTokenLatency` are there only for models that have such responses.
        """
        now = self._monotonic()
        ages = [age for entry in self._in_flight if (age := entry.age(now)) is not None]
        pending: dict[int, int] = {}
        for age in ages:
            bucket = bucket_of(age)
            pending[bucket] = pending.get(bucket, 0) + 1
        between = by_bucket(self._between_tokens.counts)
        return {
            "requests": self._answered + self._errors,
            "errors": self._errors,
            "refused": self._refused,
            "left": self._left,
            "latency": _by_name(by_bucket(self._times.counts)),
            **({"untimed": self._untimed} if self._untimed else {}),
            **({"interTokenLatency": _by_name(between)} if between else {}),
            "pending": _by_name(pending),
            "oldest": round(max(ages, default=0.0), 3),
        }


def _by_name(counts: Any) -> dict[str, int]:
    return {str(bucket): counts[bucket] for bucket in sorted(counts)}
