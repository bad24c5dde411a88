"""The idle times of a model: a histogram of bounded size with exponential decay, in memory only.

An idle time begins when the last request was answered and ends with the next request, whether the model was still warm
or at zero. Its length is counted in buckets of equal ratio (`EDGES`), so that 260 bytes distinguish one second from two
as well as one hour from two. After a few hundred idle times, each new one reduces the weight of all earlier ones: the
history represents the last few hundred idle times, regardless of the days that they took.

A histogram per model is the data structure of Serverless in the Wild (ATC'20, section 4.2); its use (`keep_alive`)
differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PER_OCTAVE: Final = 4
"""Buckets per doubling: an edge is at most 19 % from any length."""
OCTAVES: Final = 16
"""From `SHORTEST` to 18 h; no model is kept warm for longer idle times."""
SHORTEST: Final = 1.0
"""Seconds; ticks cannot distinguish shorter idle times."""
BUCKETS: Final = PER_OCTAVE * OCTAVES + 1
"""The first is from 0 to `SHORTEST`."""
KEPT: Final = 256
"""Maximum weight of a history in idle times: enough to distinguish 5 % from 10 %; at one per 5 minutes, the
last day.
"""

EDGES: Final[FloatArray] = np.concatenate([[0.0], SHORTEST * 2.0 ** (np.arange(BUCKETS) / PER_OCTAVE)])
"""Seconds, `BUCKETS` + 1 values: bucket b is from `EDGES[b]` to `EDGES[b + 1]`."""


@dataclass(slots=True)
class IdleHistory:
    """The history of one model. `counts` by bucket; the last cell is for times longer than all edges. With the same
    weights: the number of idle times, `total`, and the `seconds` that they and the work before them took.
    """

    counts: NDArray[np.float32] = field(default_factory=lambda: np.zeros(BUCKETS + 1, np.float32))
    total: float = 0.0
    seconds: float = 0.0

    def record(self, idle: float, busy: float) -> None:
        """Record an idle time of `idle` seconds, which followed work of `busy` seconds."""
        kept = 1.0 if self.total < KEPT else 1.0 - 1.0 / KEPT
        self.counts *= np.float32(kept)
        self.counts[bucket_of(idle)] += 1.0
        self.total = self.total * kept + 1.0
        self.seconds = self.seconds * kept + max(0.0, idle) + max(0.0, busy)

    def record_first(self, watched: float) -> None:
        """Record the first request, `watched` seconds after observation began: an idle time of unknown length."""
        self.total += 1.0
        self.seconds += max(0.0, watched)

    def rate(self, idle: float) -> float:
        """Return the average number of idle times that end per second; none has ended for the last `idle` seconds."""
        lasted = self.seconds + max(0.0, idle)
        return self.total / lasted if lasted > 0.0 else 0.0


def bucket_of(seconds: float) -> int:
    """Return the bucket of an idle time; `BUCKETS` if it is longer than all edges."""
    if not seconds >= SHORTEST:
        return 0
    return min(BUCKETS, 1 + int(math.log2(seconds / SHORTEST) * PER_OCTAVE))


def counts_of(histories: Sequence[IdleHistory]) -> FloatArray:
    """Return a row of `BUCKETS` + 1 cells for each history."""
    rows = [history.counts for history in histories]
    return np.array(rows, np.float64).reshape(len(rows), BUCKETS + 1)
