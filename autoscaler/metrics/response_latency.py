"""Recent response times of a revision: from the totals of its replicas to one quantile.

`GET /stats/answers` of our model server (management port) returns the number of responses of its process by latency, in
buckets that grow by 2^(1/8) (`clusters.base.latency_buckets`: bucket i holds (2^((i-1)/8), 2^(i/8)] seconds). The
difference between two pages of one process is the responses between them. The quantile is taken over the latest
differences that together hold `ENOUGH` responses, none older than `LONGEST`: the last seconds at a high request rate,
the last minute at a low one.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol

import msgspec

from autoscaler.metrics.stat import BadSample
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

PER_OCTAVE: Final = 8
"""Buckets per doubling, as in the server (`clusters.base.latency_buckets.PER_OCTAVE`)."""
LEAST, MOST = -159, 96  # buckets: 1 µs to 4096 s, the range that the server counts
LARGEST_TOTAL: Final = 10**15
QUANTILE: Final = 0.95
"""Share of the responses to which a latency objective applies."""
ENOUGH: Final = 100
"""Responses: enough to know their 0.95 quantile to within some buckets; older ones are dropped."""
LONGEST: Final = 60.0
"""Maximum age of a counted response in seconds: the default stable window."""
MAX_BYTES: Final = 65_536
"""Maximum bytes of one page: four times 257 buckets of at most 24 bytes, and the totals that the rollout judge
reads.
"""

_Name = Annotated[str, msgspec.Meta(max_length=253)]
_Total = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOTAL)]
_Bucket = Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)]


class _Page(msgspec.Struct):
    process: _Name
    latency: dict[_Bucket, _Total]
    requests: _Total = 0
    errors: _Total = 0


_DECODER = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class LatencyTotals:
    """Totals of one process: responses by bucket, and requests with those of them that failed."""

    process: str
    latency: Mapping[int, int]
    requests: int = 0
    errors: int = 0


class LatencySource(Protocol):
    """A source of replicas' latency totals."""

    async def answers(self, endpoint: Endpoint) -> LatencyTotals:
        """Return the replica's current totals. Raises NoSample or BadSample."""
        ...


def parse_latency_totals(body: bytes) -> LatencyTotals:
    """Return the totals in a response of `/stats/answers`. Raises BadSample."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/stats/answers did not answer with totals: {error}") from error
    return LatencyTotals(page.process, page.latency, page.requests, page.errors)


def upper_edge(bucket: int) -> float:
    """Return the largest latency in seconds that the bucket holds."""
    return float(2.0 ** (bucket / PER_OCTAVE))


def quantile_of(counts: Mapping[int, int], quantile: float = QUANTILE) -> float:
    """Return the seconds that this share of the responses did not exceed, rounded up to a bucket's edge; NaN without
    any.
    """
    rank, seen = math.ceil(quantile * sum(counts.values())), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if counts[bucket] and seen >= rank:
            return upper_edge(bucket)
    return float("nan")


@dataclass(slots=True)
class _Recent:
    """The state of one revision: its replicas' last totals, and the differences between readings, oldest first."""

    last: dict[str, LatencyTotals] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    parts: deque[tuple[float, Counter[int]]] = field(default_factory=deque)
    sum: Counter[int] = field(default_factory=Counter)


class RecentLatencies:
    """The recent response times of all revisions."""

    def __init__(self) -> None:
        self._revisions: dict[Key, _Recent] = {}

    def add(self, key: Key, pages: Mapping[str, LatencyTotals], ready: frozenset[str], now: float) -> tuple[float, int]:
        """Add the pages of one tick, by Pod, at `now` (monotonic seconds); `ready` are all ready replicas.

        Returns the quantile in seconds (NaN without responses) and its number of responses. Responses before the first
        page of a process are not counted, because they may be old. Responses before another replica became ready are
        dropped, because they do not reflect the present number of replicas.
        """
        recent = self._revisions.setdefault(key, _Recent())
        part: Counter[int] = Counter()
        for pod, page in pages.items():
            before = recent.last.get(pod)
            if before is not None and before.process == page.process:
                part.update({bucket: n - before.latency.get(bucket, 0) for bucket, n in page.latency.items()})
        if not ready <= recent.ready:
            recent.parts.clear()
            recent.sum.clear()
        recent.ready = ready
        recent.last = {pod: page for pod, page in {**recent.last, **pages}.items() if pod in ready}
        part = +part  # without buckets that did not grow
        if part:
            recent.parts.append((now, part))
            recent.sum += part
        while recent.parts:
            at, oldest = recent.parts[0]
            if at > now - LONGEST and recent.sum.total() - oldest.total() < ENOUGH:
                break
            recent.parts.popleft()
            recent.sum -= oldest
        return quantile_of(recent.sum), recent.sum.total()

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone, has no replicas, or has no objective any more."""
        self._revisions.pop(key, None)
