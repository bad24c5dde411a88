"""The report of a load test: percentiles by version, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

TOTAL: Final = "total"
"""The version in the rows of all versions together."""
NO_VERSION: Final = "none"
"""The version of responses that no version gave: errors of the gateway, and no response at all."""
REQUESTS: Final = frozenset({"infer", "chat"})
"""The kinds of rows that are requests; the others are times of a part of a response."""


@dataclass(frozen=True, slots=True)
class Row:
    """The times of one version in ms: of whole responses (`infer`, `chat`), to the first token (`TTFT`), or per token
    after it (`TPOT`).

    Failed requests count, too. Percentiles are rounded as locust does: to 1 ms below 100 ms, to 10 ms below 1 s.
    """

    version: str
    kind: str
    requests: int
    errors: int
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a load test of `seconds`. `due` and `reached` are average rates in requests per second.

    `errors` are the distinct errors, each after its version, with their counts, the most frequent first. `missed` has a
    sentence for each limit that is exceeded.
    """

    seconds: float
    due: float
    reached: float
    rows: Sequence[Row]
    errors: Mapping[str, int]
    missed: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Report:
        """Return the report of a JSON value of `to_json`."""
        return cls(**{**value, "rows": [Row(**row) for row in value["rows"]]})


def missed_limits(rows: Sequence[Row], max_p95: float | None, max_errors: float) -> list[str]:
    """Return a sentence for each exceeded limit.

    `max_p95` is in ms (None: no limit), for all requests together. `max_errors` is in per cent of them. A test without
    requests fails.
    """
    total = next((row for row in rows if row.version == TOTAL and row.kind in REQUESTS), None)
    if total is None or not total.requests:
        return ["no request was completed: choose a longer duration or a higher rate"]
    missed = []
    share = 100.0 * total.errors / total.requests
    if share > max_errors:
        missed.append(f"{total.errors} of {total.requests} requests failed, {share:.3g} % (limit {max_errors:g} %)")
    if max_p95 is not None and total.p95 > max_p95:
        missed.append(f"p95 is {total.p95:g} ms (limit {max_p95:g} ms)")
    return missed
