"""Queries of a judge: expand their variables, read values from the answers, and pause queries that time out. Pure.

    $candidate, $stable     revisions of the version; with variants several, joined by `|`: write revision=~"$candidate"
    $model, $namespace      the name and namespace of the Model

Variables are written as in Grafana, since PromQL has no other meaning for them. Other text is unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from clusters.base.backoff import Backoff
from clusters.net.prometheus import LONGEST_REASON, Data, NoValue, read_data
from serving.types.rollout import MetricRule

_VARIABLE = re.compile(r"\$(candidate|stable|model|namespace)\b")
FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 120.0
"""s of a query's pause after a timeout: as long as a judge's interval at first, doubled by each further timeout."""
_BACKOFF: Final = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
MOST_QUERIES: Final = 1000
"""Paused queries kept. When there are more, all of them are sent again."""


class _Sample(msgspec.Struct):
    value: tuple[float, str] | None = None  # None in a native histogram


_SCALAR = msgspec.json.Decoder(tuple[float, str])
_VECTOR = msgspec.json.Decoder(list[_Sample])


def expand_queries(
    rules: Collection[MetricRule], *, namespace: str, model: str, stable: Collection[str], candidate: Collection[str]
) -> tuple[MetricRule, ...]:
    """Return the rules with the variables of their queries replaced. Names of Kubernetes need no escaping."""
    values = {
        "namespace": namespace,
        "model": model,
        "stable": "|".join(sorted(stable)),
        "candidate": "|".join(sorted(candidate)),
    }
    return tuple(replace(rule, query=_VARIABLE.sub(lambda found: values[found[1]], rule.query)) for rule in rules)


def parse_value(body: bytes) -> float:
    """Return the value of a scalar, or the largest value of a vector: the bound holds for all its series.

    Raises NoValue.
    """
    try:
        numbers = [float(text) for text in _texts(read_data(body))]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise NoValue(f"the answer is not in the format of Prometheus' query API: {error}") from error
    known = [number for number in numbers if not math.isnan(number)]
    if not known:
        raise NoValue("the query returned NaN: it divides by 0" if numbers else "the query returned no series")
    return max(known)


def _texts(data: Data) -> Sequence[str]:
    """Return the numbers as written in the answer. Raises NoValue, DecodeError."""
    if data.kind == "scalar":
        return (_SCALAR.decode(data.result)[1],)
    if data.kind == "vector":
        return [sample.value[1] for sample in _VECTOR.decode(data.result) if sample.value is not None]
    kind = data.kind[:LONGEST_REASON]
    raise NoValue(f"the query returned a {kind}: write a query that returns a number, such as rate()")


class QueryBackoff:
    """Pauses queries that timed out, each for itself: one query may be slow while the server is well."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds."""
        self._monotonic = monotonic
        self._until: dict[str, tuple[float, int]] = {}  # end of the pause, timeouts in a row

    def is_paused(self, query: str) -> bool:
        """Return whether the query must not be sent now."""
        until, _ = self._until.get(query, (0.0, 0))
        return query in self._until and self._monotonic() < until

    def record_timeout(self, query: str) -> None:
        """Pause the query, twice as long as the last time."""
        if len(self._until) >= MOST_QUERIES and query not in self._until:
            self._until.clear()
        _, timeouts = self._until.get(query, (0.0, 0))
        self._until[query] = (self._monotonic() + _BACKOFF.delay(timeouts), timeouts + 1)

    def record_answer(self, query: str) -> None:
        """End the pauses of a query that was answered in time."""
        self._until.pop(query, None)
