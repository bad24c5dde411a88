"""Compute the requests of revisions between two readings from the totals of their replicas. Pure.

    a replica                               counts
    at the first reading                    nothing: its former requests do not belong to this rollout
    that is new since                       all its totals
    that existed, in the same process       the difference to its last reading, also when readings between had no answer
    that existed, in another process        all its totals, and one failure if the former process served the split at
                                            its last reading: it had requests in flight, or more requests than at the
                                            reading before
    without an answer at the first reading  nothing at its first reading

A process that ended is one failure, however many requests were in flight. They failed together, and the judge's bounds
are for requests that fail independently. A process without requests of the split was ended by another request (of a
caller of a tag) or by the node (no memory), which is no evidence about the split. A version whose processes end again
and again is down (`rollout.steps`).

Replicas are read until they have ended. Requests between the last reading and the end are not counted. Requests in
flight are not totals: they are those of the last reading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.latency_buckets import LEAST, MOST, bucket_of
from serving.reconciler.rollout.judging.counts import Counts

LARGEST_TOTAL = 10**15
"""Requests: 30 years at a million per second. More is invalid, and a double no longer represents each number."""
CRASHED = Counts(requests=1, errors=1)
"""The counts of a process that ended while it served the split."""

_Name = Annotated[str, msgspec.Meta(max_length=253)]
_Total = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOTAL)]
_Bucket = Annotated[int, msgspec.Meta(ge=bucket_of(LEAST), le=bucket_of(MOST))]


class BadReading(KnodelError):
    """The answer of a replica is not a valid reading."""


class _Split(msgspec.Struct):
    requests: _Total
    errors: _Total
    refused: _Total
    left: _Total
    latency: dict[_Bucket, _Total]
    pending: dict[_Bucket, _Total]
    untimed: _Total = 0
    between_tokens: dict[_Bucket, _Total] = msgspec.field(default_factory=dict, name="interTokenLatency")


class _Page(msgspec.Struct):
    """The page of a replica. `split` is absent in releases that did not count the split's requests separately."""

    revision: _Name
    process: _Name
    requests: _Total
    errors: _Total
    latency: dict[_Bucket, _Total]
    split: _Split | None = None


_DECODER = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class Reading:
    """The totals of one replica: those of the `process` that serves `revision`.

    `served`: more requests of the split were answered than at the last reading.
    """

    revision: str
    process: str
    totals: Counts
    served: bool = False


Seen = Mapping[str, Reading | None]
"""Readings by Pod (`namespace/name`); None for replicas that did not answer."""


def parse_reading(body: bytes) -> Reading:
    """Parse an answer of `/stats/answers`. Raises BadReading."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReading(f"the answer of /stats/answers is not a reading: {error}") from error
    split = page.split or _Split(page.requests, page.errors, 0, 0, page.latency, {})
    totals = Counts(
        split.requests, split.errors, split.latency, split.refused, split.left, split.pending, split.between_tokens
    )
    if totals.errors + totals.timed + split.untimed != totals.requests + totals.left:
        times = f"{totals.errors} errors, {totals.timed} latencies and {split.untimed} responses without one"
        raise BadReading(f"{times} do not add up to {totals.requests} requests and {totals.left} callers that left")
    return Reading(page.revision, page.process, totals)


def answered_since(former: Seen | None, seen: Seen) -> Mapping[str, Counts]:
    """Return the counts of each revision since the last readings (None at first).

    Revisions without an answering replica are left out.
    """
    answered: dict[str, Counts] = {}
    for pod, reading in seen.items():
        if reading is not None:
            more = Counts(pending=reading.totals.pending) if former is None else _since(former, pod, reading)
            answered[reading.revision] = answered.get(reading.revision, Counts()).merge(more)
    return answered


def remembered(former: Seen | None, seen: Seen, there: Collection[str]) -> Seen:
    """Return the readings that the next ones are compared with: the last one of each replica that is `there`.

    A new replica that has not answered yet is left out, since all its totals will be new.
    """
    if former is None:
        return seen
    last = {pod: former[pod] for pod in there if pod in former}
    return last | {pod: _compared(former, pod, reading) for pod, reading in seen.items() if reading is not None}


def _compared(former: Seen, pod: str, reading: Reading) -> Reading:
    """Return the reading with `served` set from the last reading."""
    last = former.get(pod)
    if last is None and pod in former:
        return reading
    before = last.totals if last is not None and last.process == reading.process else Counts()
    return replace(reading, served=replace(reading.totals.since(before), pending={}) != Counts())


def _since(former: Seen, pod: str, reading: Reading) -> Counts:
    if pod not in former:
        return reading.totals
    last = former[pod]
    if last is None:
        return Counts(pending=reading.totals.pending)
    if last.process != reading.process:
        return reading.totals.merge(CRASHED) if last.served or last.totals.in_flight else reading.totals
    return reading.totals.since(last.totals)
