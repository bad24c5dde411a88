"""What became of the requests of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscaler.scaling.table import FloatArray, IntArray
from loadtests.load.plan import ANSWERS, HEADER

OK = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """By request, in the order in which they were due (seconds since `began`, of the monotonic clock).

    `took`: seconds from then to the whole answer, right or not. `which` of the right answers it was, -1 for
    none; `errors`: what went wrong, "" where nothing did.
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
    def right(self) -> float:
        """Share of the requests that were answered rightly."""
        return float(np.mean(self.status == OK)) if len(self) else 0.0

    @property
    def failed(self) -> int:
        """How many were not."""
        return int(np.sum(self.status != OK))

    @property
    def last_end(self) -> float:
        """Seconds since the beginning until the last answer."""
        return float(np.max(self.due + self.took))

    @property
    def rate(self) -> float:
        """Requests answered a second."""
        return len(self) / self.last_end

    def quantile(self, share: float) -> float:
        """Milliseconds that this share of the right answers takes at most; infinite without any."""
        took = self.took[self.status == OK]
        return 1000.0 * float(np.quantile(took, share, method="inverted_cdf")) if len(took) else float("inf")

    def between(self, first: float, last: float) -> Answers:
        """Those to requests that were due from `first` until before `last` (seconds)."""
        chosen = np.flatnonzero((self.due >= first) & (self.due < last))
        errors = [self.errors[number] for number in chosen.tolist()]
        return Answers(self.began, self.due[chosen], self.took[chosen], self.status[chosen], self.which[chosen], errors)

    def worst_stretch(self) -> float:
        """Seconds from the first to the last request of the longest row of failures; one alone lasts 0 s."""
        longest, since = 0.0, None
        for due, wrong in zip(self.due.tolist(), (self.status != OK).tolist(), strict=True):
            since = (due if since is None else since) if wrong else None
            longest = max(longest, due - since) if since is not None else longest
        return longest

    def faults(self) -> list[tuple[str, int]]:
        """What went wrong and how often, the most frequent first."""
        wrong = np.flatnonzero(self.status != OK)
        return Counter(
            f"{self.status[number]} {self.errors[number]}".strip() for number in wrong.tolist()
        ).most_common()


def read_answers(folder: Path) -> Answers:
    """What a generator wrote into the folder. Raises ValueError where it did not."""
    began, header, *lines = (folder / ANSWERS).read_text().splitlines()
    if header != HEADER:
        raise ValueError(f"{folder / ANSWERS}: has columns {header!r}, not {HEADER!r}; another version wrote it")
    rows = sorted((line.split(",", 4) for line in lines), key=lambda row: float(row[0]))
    due, took = (np.array([float(row[column]) for row in rows]) for column in (0, 1))
    status, which = (np.array([int(row[column]) for row in rows], dtype=np.int64) for column in (2, 3))
    return Answers(float(began), due, took, status, which, [row[4] for row in rows])
