"""From the totals that replicas tell to what their revisions answered between two looks. Pure.

    a replica                               counts
    at the first look                       nothing: what it answered before is not this rollout's
    that came since                         all that it tells
    that was there, in the same process     what came since its last reading, also where looks between had no answer
    that was there, in another process      all that it tells, and one failure where the process before served the split
                                            at its last reading: requests in flight, or more answered than at the
                                            reading before
    that was silent at the first look       nothing at its first reading

A process that ended is one failure, however many requests were in flight: they failed together, and the judge's bounds
are for requests that fail independently. A process without requests of the split ended by another's request (a caller
of a tag) or the node's choice (no memory), which says nothing of the split. A version whose processes end again and
again is down (`rollout.steps`).

What a replica answers between its last reading and its end is not seen: it is read until it has ended. Requests in
flight are no totals: they are as the last reading has them.
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
"""Requests: 30 years of a million each second; more is garbage, and a double no longer counts it one by one."""
CRASHED = Counts(requests=1, errors=1)
"""What a process counts that ended while it served the split."""

_Name = Annotated[str, msgspec.Meta(max_length=253)]
_Total = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOTAL)]
_Bucket = Annotated[int, msgspec.Meta(ge=bucket_of(LEAST), le=bucket_of(MOST))]


class BadReading(KnodelError):
    """What a replica told is no reading."""


class _Split(msgspec.Struct):
    requests: _Total
    errors: _Total
    refused: _Total
    left: _Total
    latency: dict[_Bucket, _Total]
    pending: dict[_Bucket, _Total]


class _Page(msgspec.Struct):
    """`split` is absent from a server of a release that counted all requests alike."""

    revision: _Name
    process: _Name
    requests: _Total
    errors: _Total
    latency: dict[_Bucket, _Total]
    split: _Split | None = None


_DECODER = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one replica tells: totals of the `process` that serves `revision`.

    `served` says whether more of the split was answered than at the reading before.
    """

    revision: str
    process: str
    totals: Counts
    served: bool = False


Seen = Mapping[str, Reading | None]
"""Replicas by Pod (`namespace/name`), those that did not answer as None."""


def parse_reading(body: bytes) -> Reading:
    """The reading in an answer of `/stats/answers`. Raises BadReading."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReading(f"/stats/answers did not answer with a reading: {error}") from error
    split = page.split or _Split(page.requests, page.errors, 0, 0, page.latency, {})
    totals = Counts(split.requests, split.errors, split.latency, split.refused, split.left, split.pending)
    if totals.errors + totals.timed != totals.requests + totals.left:
        times = f"{totals.errors} errors and {totals.timed} latencies"
        raise BadReading(f"{times} are not the {totals.requests} requests and {totals.left} callers that left")
    return Reading(page.revision, page.process, totals)


def answered_since(former: Seen | None, seen: Seen) -> Mapping[str, Counts]:
    """What each revision answered since the look before, of which there is none (None) at first.

    Revisions of which no replica answered are left out.
    """
    answered: dict[str, Counts] = {}
    for pod, reading in seen.items():
        if reading is not None:
            more = Counts(pending=reading.totals.pending) if former is None else _since(former, pod, reading)
            answered[reading.revision] = answered.get(reading.revision, Counts()).merge(more)
    return answered


def remembered(former: Seen | None, seen: Seen, there: Collection[str]) -> Seen:
    """What the next look is compared with: of each replica that is `there` its last reading.

    One that came since and did not answer yet is not in it: what it will tell is new.
    """
    if former is None:
        return seen
    last = {pod: former[pod] for pod in there if pod in former}
    return last | {pod: _compared(former, pod, reading) for pod, reading in seen.items() if reading is not None}


def _compared(former: Seen, pod: str, reading: Reading) -> Reading:
    """Return the reading with whether the replica served the split since the reading before."""
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
