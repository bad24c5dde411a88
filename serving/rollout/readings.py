"""From the totals that replicas tell to what their revisions answered between two looks. Pure.

    a replica                               counts
    at the first look                       nothing: what it answered before is not this rollout's
    that came since                         all that it tells
    that was there, in the same process     what came since its last reading, also where looks between had no answer
    that was there, in another process      all that it tells, and one failure: a process does not end on its own in a
                                            replica that stays, and whoever it was at work for got no answer
    that was silent at the first look       nothing at its first reading

What a replica answers between its last reading and its end is not seen: it is read until it has ended. Requests in
flight are no totals: they are as the last reading has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from clusters.errors import KnodelError
from serving.apis.latency import LEAST, MOST, bucket_of
from serving.rollout.counts import Counts

LARGEST_TOTAL = 10**15
"""Requests: 30 years of a million each second; more is garbage, and a double no longer counts it one by one."""
CRASHED = Counts(requests=1, errors=1)
"""The least that is lost with a process."""

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
    """What one replica tells: totals of the `process` that serves `revision`."""

    revision: str
    process: str
    totals: Counts


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
    return last | {pod: reading for pod, reading in seen.items() if reading is not None}


def _since(former: Seen, pod: str, reading: Reading) -> Counts:
    if pod not in former:
        return reading.totals
    last = former[pod]
    if last is None:
        return Counts(pending=reading.totals.pending)
    if last.process != reading.process:
        return reading.totals.merge(CRASHED)
    return reading.totals.since(last.totals)
