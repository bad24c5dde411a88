"""How long a revision's answers took of late: from the totals that its replicas tell to one quantile.

Our model server's `GET /stats/answers` (management port) tells how many answers of its process took how long, in
buckets that grow by 2^(1/8) (`clusters.base.latency_buckets`: bucket i holds (2^((i-1)/8), 2^(i/8)] seconds). Two pages
of one process differ by what was answered between them. Of those differences, the latest are read that together hold
`ENOUGH` answers, and none older than `LONGEST`: at many requests a second the last seconds, at few the last minute.
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
"""Buckets for each doubling: what the server counts in (`clusters.base.latency_buckets.PER_OCTAVE`)."""
LEAST, MOST = -159, 96  # buckets: 1 µs to 4096 s, beyond which the server counts nothing
LARGEST_TOTAL: Final = 10**15
QUANTILE: Final = 0.95
"""Share of the answers that a latency objective speaks of."""
ENOUGH: Final = 100
"""Answers: their 0.95 quantile is known to some buckets, and what was longer ago is left out."""
LONGEST: Final = 60.0
"""s that an answer counts at most: the autoscaler's stable window, by default."""
MAX_BYTES: Final = 65_536
"""Bytes of one page: three times 257 buckets of at most 24 bytes, and what the judge of a rollout reads besides."""

_Name = Annotated[str, msgspec.Meta(max_length=253)]
_Total = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOTAL)]
_Bucket = Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)]


class _Page(msgspec.Struct):
    process: _Name
    latency: dict[_Bucket, _Total]


_DECODER = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class Answers:
    """Totals of one process: answers by bucket."""

    process: str
    latency: Mapping[int, int]


class AnswerSource(Protocol):
    """Pages of replicas."""

    async def answers(self, endpoint: Endpoint) -> Answers:
        """The replica's totals now. Raises NoSample or BadSample."""
        ...


def parse_answers(body: bytes) -> Answers:
    """The totals in an answer of `/stats/answers`. Raises BadSample."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/stats/answers did not answer with totals: {error}") from error
    return Answers(page.process, page.latency)


def upper_edge(bucket: int) -> float:
    """The largest latency in seconds that the bucket holds."""
    return float(2.0 ** (bucket / PER_OCTAVE))


def quantile_of(counts: Mapping[int, int], quantile: float = QUANTILE) -> float:
    """Seconds that this share of the answers did not exceed, rounded up to a bucket's edge; NaN without answers."""
    rank, seen = math.ceil(quantile * sum(counts.values())), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if counts[bucket] and seen >= rank:
            return upper_edge(bucket)
    return float("nan")


@dataclass(slots=True)
class _Recent:
    """A revision: its replicas' last totals, and what came between readings, oldest first."""

    last: dict[str, Answers] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    parts: deque[tuple[float, Counter[int]]] = field(default_factory=deque)
    sum: Counter[int] = field(default_factory=Counter)


class Latencies:
    """The answers of revisions of late."""

    def __init__(self) -> None:
        self._revisions: dict[Key, _Recent] = {}

    def add(self, key: Key, pages: Mapping[str, Answers], ready: frozenset[str], now: float) -> tuple[float, int]:
        """Take the pages of one tick, by Pod, at `now` (monotonic s); `ready` are all replicas.

        Returns the quantile in seconds (NaN without answers) and how many answers stand behind it. What a process
        answered before its first page is not counted: it may be long ago. Nor is what was answered before more replicas
        were ready: it says nothing of how they do now.
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
        _append(recent, now, +part)
        return quantile_of(recent.sum), recent.sum.total()

    def forget(self, key: Key) -> None:
        """The revision is gone, has no replicas, or no objective any more."""
        self._revisions.pop(key, None)


def _append(recent: _Recent, now: float, part: Counter[int]) -> None:
    if part:
        recent.parts.append((now, part))
        recent.sum += part
    while recent.parts:
        at, oldest = recent.parts[0]
        if at > now - LONGEST and recent.sum.total() - oldest.total() < ENOUGH:
            return
        recent.parts.popleft()
        recent.sum -= oldest
