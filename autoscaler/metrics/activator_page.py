"""Parser of the two gauges of Knative's activator, from its page in Prometheus' text format. Pure, apart from a parse
cache.

    kn_revision_request_queued{k8s_namespace_name="…",kn_revision_name="…",…} 1    waiting for a replica
    kn_revision_request_active{k8s_namespace_name="…",kn_revision_name="…",…} 0    forwarded, not yet answered

An activator distinguishes 2 000 revisions since its start (OpenTelemetry's limit of attribute sets). Later revisions
share one series with `otel_metric_overflow="true"`. Format: version 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/. A page with any malformed line in these gauges is rejected
as a whole, because the missing line might be the request that is queued.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.errors import KnodelError
from clusters.base.objects import Key

QUEUED, ACTIVE = "kn_revision_request_queued", "kn_revision_request_active"
LARGEST_COUNT = 1_000_000  # requests of one revision at one activator, which queues 10 000; larger counts are rejected
MOST_CACHED = 20_000  # lines and series: five times the distinct revisions of an activator, for two gauges

_SERIES = re.compile(r"([a-zA-Z_:][\w:]*+)(?:\{(.*)\})?", re.ASCII)
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*+)\s*=\s*"((?:[^"\\]|\\.)*+)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_NAMESPACE, _REVISION, _OVERFLOW = "k8s_namespace_name", "kn_revision_name", "otel_metric_overflow"


class BadPage(KnodelError):
    """Raised when an activator's response is not a page of its gauges."""


@dataclass(frozen=True, slots=True)
class ActivatorRequests:
    """Requests of one revision at one or all activators: waiting for a replica (`queued`), or forwarded and not yet
    answered.
    """

    queued: int = 0
    active: int = 0


NO_REQUESTS = ActivatorRequests()


@dataclass(frozen=True, slots=True)
class ActivatorPage:
    """The requests at one activator. `uncounted` is the sum of all revisions that it does not distinguish (not in
    `counted`).
    """

    held: Mapping[Key, ActivatorRequests] = field(default_factory=dict)  # without revisions that have no requests
    uncounted: ActivatorRequests | None = None
    counted: frozenset[Key] = frozenset()  # where `uncounted` is not None

    def of(self, key: Key) -> ActivatorRequests:
        """Return the requests of a revision; for an indistinguishable revision, the sum of all of these."""
        found = self.held.get(key)
        if found is not None:
            return found
        return NO_REQUESTS if self.uncounted is None or key in self.counted else self.uncounted


EMPTY_PAGE = ActivatorPage()

_Place = tuple[str, Key | None]
"""The gauge, and its revision (None: the overflow series)."""


class PageReader:
    """Reads the pages of one activator. Successive pages are equal or differ in one line, so lines are cached."""

    def __init__(self) -> None:
        self._body = b""
        self._page = EMPTY_PAGE
        self._places: dict[str, _Place | None] = {}
        self._idle: set[str] = set()  # lines without effect: comments, other series, a count of 0

    def read(self, body: bytes) -> ActivatorPage:
        """Return the page; the identical object when nothing has changed. Raises BadPage."""
        if body != self._body:
            self._page = self._parse(body)
            self._body = body
        return self._page

    def _parse(self, body: bytes) -> ActivatorPage:
        try:
            lines = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise BadPage(f"the page is not UTF-8: {error}") from error
        if len(self._idle) + len(self._places) > MOST_CACHED or _OVERFLOW.encode() in body:
            self._places.clear()
            self._idle.clear()
        counts: dict[str, dict[Key | None, int]] = {QUEUED: {}, ACTIVE: {}}
        for line in lines:
            if line in self._idle:
                continue
            series, _, value = line.rpartition(" ")
            place = None
            if line and line[0] != "#":
                if series not in self._places:
                    self._places[series] = _read_series(series)
                place = self._places[series]
            count = 0
            if place is not None:
                gauge, key = place
                count = _count(value, series)
                counts[gauge][key] = counts[gauge].get(key, 0) + count
            if count == 0:
                self._idle.add(line)
        return _page(counts[QUEUED], counts[ACTIVE])


def _page(queued: Mapping[Key | None, int], active: Mapping[Key | None, int]) -> ActivatorPage:
    held = {
        key: ActivatorRequests(queued.get(key, 0), active.get(key, 0))
        for key in {**queued, **active}
        if key is not None and (queued.get(key) or active.get(key))
    }
    if None not in queued and None not in active:
        return ActivatorPage(held)
    counted = frozenset(key for key in (*queued, *active) if key is not None)
    return ActivatorPage(held, ActivatorRequests(queued.get(None, 0), active.get(None, 0)), counted)


def _count(value: str, series: str) -> int:
    """Return a number of requests. Raises BadPage for NaN, infinite, negative, malformed or too large values."""
    try:
        number = int(value) if value.isdecimal() and len(value) < 8 else float(value)
    except ValueError as error:
        raise BadPage(f"{series} is {value!r}, which is not a number") from error
    if not 0 <= number <= LARGEST_COUNT or number != int(number):
        raise BadPage(f"{series} is {value}: expected a whole number from 0 to {LARGEST_COUNT}")
    return int(number)


def _read_series(series: str) -> _Place | None:
    """Return the gauge and revision of a series, None for other metrics. Raises BadPage."""
    found = _SERIES.fullmatch(series)
    if found is None:
        raise BadPage(f"{series[:80]!r} is not a series of Prometheus' text format")
    name, labels = found.groups()
    if name not in (QUEUED, ACTIVE):
        return None
    found_labels = _labels(labels or "")
    if found_labels.get(_OVERFLOW) == "true":
        return name, None
    if not found_labels.get(_NAMESPACE) or not found_labels.get(_REVISION):
        raise BadPage(f"{series[:200]} has no label for its revision")
    return name, Key(found_labels[_NAMESPACE], found_labels[_REVISION])


def _labels(text: str) -> dict[str, str]:
    labels, position = {}, 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None:
            raise BadPage(f"the labels {text[:200]} are not in Prometheus' text format")
        labels[found[1]] = _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), found[2])
        position = found.end()
    return labels
