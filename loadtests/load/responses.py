"""The responses to the requests of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscaler.scaling.table import FloatArray, IntArray
from loadtests.load.plan import HEADER, RESPONSES

OK = 200


@dataclass(frozen=True, slots=True)
class Responses:
    """The response to each request, in the order in which the requests were due.

    `began` is a time of the monotonic clock, `due` is in seconds after it. `took`: seconds from then to the whole
    response, successful or not. `which`: the index of the accepted text in the response, -1 for none. `errors`: the
    error, or an empty string.
    """

    began: float
    due: FloatArray
    took: FloatArray
    status: IntArray
    which: IntArray
    errors: Sequence[str]

    def __len__(self) -> int:
        return len(self.due)

    @property
    def success_rate(self) -> float:
        """Share of requests with a successful response, from 0 to 1."""
        return float(np.mean(self.status == OK)) if len(self) else 0.0

    @property
    def failed(self) -> int:
        """Number of requests without a successful response."""
        return int(np.sum(self.status != OK))

    @property
    def last_end(self) -> float:
        """Seconds from the beginning to the last response."""
        return float(np.max(self.due + self.took))

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self) / self.last_end

    def quantile(self, share: float) -> float:
        """Return the quantile of the latency of successful responses in ms; infinite without any."""
        took = self.took[self.status == OK]
        return 1000.0 * float(np.quantile(took, share, method="inverted_cdf")) if len(took) else float("inf")

    def between(self, first: float, last: float) -> Responses:
        """Return the responses to requests that were due from `first` until before `last` (seconds)."""
        chosen = np.flatnonzero((self.due >= first) & (self.due < last))
        errors = [self.errors[number] for number in chosen.tolist()]
        return Responses(
            self.began, self.due[chosen], self.took[chosen], self.status[chosen], self.which[chosen], errors
        )

    def worst_stretch(self) -> float:
        """Return the seconds from the first to the last request of the longest sequence of failures; 0 for a single
        one.
        """
        longest, since = 0.0, None
        for due, wrong in zip(self.due.tolist(), (self.status != OK).tolist(), strict=True):
            since = (due if since is None else since) if wrong else None
            longest = max(longest, due - since) if since is not None else longest
        return longest

    def faults(self) -> list[tuple[str, int]]:
        """Return the errors with their counts, the most frequent first."""
        wrong = np.flatnonzero(self.status != OK)
        return Counter(
            f"{self.status[number]} {self.errors[number]}".strip() for number in wrong.tolist()
        ).most_common()


def read_responses(folder: Path) -> Responses:
    """Read the responses that a generator wrote into the folder. Raises ValueError if the columns are wrong."""
    began, header, *lines = (folder / RESPONSES).read_text().splitlines()
    if header != HEADER:
        raise ValueError(
            f"{folder / RESPONSES}: has columns {header!r}, not {HEADER!r}; it was written by another version"
        )
    rows = sorted((line.split(",", 4) for line in lines), key=lambda row: float(row[0]))
    due, took = (np.array([float(row[column]) for row in rows]) for column in (0, 1))
    status, which = (np.array([int(row[column]) for row in rows], dtype=np.int64) for column in (2, 3))
    return Responses(float(began), due, took, status, which, [row[4] for row in rows])
