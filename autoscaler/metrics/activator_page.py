"""The two gauges of Knative's activator, out of its page in Prometheus' text format. Pure but for a cache of parsing.

    kn_revision_request_queued{k8s_namespace_name="…",kn_revision_name="…",…} 1    waiting for a replica
    kn_revision_request_active{k8s_namespace_name="…",kn_revision_name="…",…} 0    passed on, not yet answered

An activator counts 2 000 revisions apart since its start (OpenTelemetry's limit of attribute sets); those that come
later share one series with `otel_metric_overflow="true"`. Format: version 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/. A page with any nonsense in these gauges is refused as a
whole: what it leaves out might be the request that waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.errors import KnodelError
from clusters.base.objects import Key

QUEUED, ACTIVE = "kn_revision_request_queued", "kn_revision_request_active"
LARGEST_COUNT = 1_000_000  # requests of one revision at one activator, which queues 10 000; more is garbage
MOST_CACHED = 20_000  # lines and series: five times what an activator counts apart, by two gauges

_SERIES = re.compile(r"([a-zA-Z_:][\w:]*+)(?:\{(.*)\})?", re.ASCII)
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*+)\s*=\s*"((?:[^"\\]|\\.)*+)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_NAMESPACE, _REVISION, _OVERFLOW = "k8s_namespace_name", "kn_revision_name", "otel_metric_overflow"


class BadPage(KnodelError):
    """What an activator answered is no page of its gauges."""


@dataclass(frozen=True, slots=True)
class Held:
    """Requests of one revision at one or all activators: waiting for a replica; passed on, not yet answered."""

    queued: int = 0
    active: int = 0


NOTHING = Held()


@dataclass(frozen=True, slots=True)
class Page:
    """What one activator holds. `uncounted`: of all revisions that it does not count apart, those not in `counted`."""

    held: Mapping[Key, Held] = field(default_factory=dict)  # without those that hold nothing
    uncounted: Held | None = None
    counted: frozenset[Key] = frozenset()  # where `uncounted` is not None

    def of(self, key: Key) -> Held:
        """What it holds of a revision, or may hold."""
        found = self.held.get(key)
        if found is not None:
            return found
        return NOTHING if self.uncounted is None or key in self.counted else self.uncounted


EMPTY = Page()

_Place = tuple[str, Key | None]
"""Which gauge, and whose (None: the overflow)."""


class PageReader:
    """Reads the pages of one activator, which are mostly the same from poll to poll, or differ in a line."""

    def __init__(self) -> None:
        self._body = b""
        self._page = EMPTY
        self._places: dict[str, _Place | None] = {}
        self._idle: set[str] = set()  # lines that say nothing: comments, other series, a count of 0

    def read(self, body: bytes) -> Page:
        """The page; the very same object as before when nothing has changed. Raises BadPage."""
        if body != self._body:
            self._page = self._parse(body)
            self._body = body
        return self._page

    def _parse(self, body: bytes) -> Page:
        try:
            lines = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise BadPage(f"the page is no UTF-8: {error}") from error
        if len(self._idle) + len(self._places) > MOST_CACHED or _OVERFLOW.encode() in body:
            self._places.clear()
            self._idle.clear()
        counts: dict[str, dict[Key | None, int]] = {QUEUED: {}, ACTIVE: {}}
        for line in lines:
            if line not in self._idle:
                self._take(line, counts)
        return _page(counts[QUEUED], counts[ACTIVE])

    def _take(self, line: str, counts: Mapping[str, dict[Key | None, int]]) -> None:
        series, _, value = line.rpartition(" ")
        place = None if not line or line[0] == "#" else self._place(series)
        if place is None:
            self._idle.add(line)
            return
        gauge, key = place
        count = _count(value, series)
        counts[gauge][key] = counts[gauge].get(key, 0) + count
        if count == 0:
            self._idle.add(line)

    def _place(self, series: str) -> _Place | None:
        if series not in self._places:
            self._places[series] = _read_series(series)
        return self._places[series]


def _page(queued: Mapping[Key | None, int], active: Mapping[Key | None, int]) -> Page:
    held = {
        key: Held(queued.get(key, 0), active.get(key, 0))
        for key in {**queued, **active}
        if key is not None and (queued.get(key) or active.get(key))
    }
    if None not in queued and None not in active:
        return Page(held)
    counted = frozenset(key for key in (*queued, *active) if key is not None)
    return Page(held, Held(queued.get(None, 0), active.get(None, 0)), counted)


def _count(value: str, series: str) -> int:
    """A number of requests. Raises BadPage for NaN, infinite, negative, broken or absurd ones."""
    try:
        number = int(value) if value.isdecimal() and len(value) < 8 else float(value)
    except ValueError as error:
        raise BadPage(f"{series} is {value!r}, which is no number") from error
    if not 0 <= number <= LARGEST_COUNT or number != int(number):
        raise BadPage(f"{series} is {value}: expected a whole number from 0 to {LARGEST_COUNT}")
    return int(number)


def _read_series(series: str) -> _Place | None:
    """Which count it is, None for one that is not asked for. Raises BadPage."""
    found = _SERIES.fullmatch(series)
    if found is None:
        raise BadPage(f"{series[:80]!r} is no series of Prometheus' text format")
    name, labels = found.groups()
    if name not in (QUEUED, ACTIVE):
        return None
    said = _labels(labels or "")
    if said.get(_OVERFLOW) == "true":
        return name, None
    if not said.get(_NAMESPACE) or not said.get(_REVISION):
        raise BadPage(f"{series[:200]} names no revision")
    return name, Key(said[_NAMESPACE], said[_REVISION])


def _labels(text: str) -> dict[str, str]:
    labels, position = {}, 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None:
            raise BadPage(f"the labels {text[:200]} are not in Prometheus' text format")
        labels[found[1]] = _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), found[2])
        position = found.end()
    return labels
