"""How long a model was idle between its requests: a histogram of bounded size that forgets, in memory only.

An idle time begins when the last request was answered and ends when the next one comes, whether the model was still
warm then or at zero. Its length is counted in buckets of equal ratio (`EDGES`), so that 260 bytes tell a second from
two as well as an hour from two. Once it has a few hundred, each further one takes a little of the weight of all
before it: a model is known by its last few hundred idle times, however many days those took.

The shape of such a history, a histogram for each model, is that of Serverless in the Wild (ATC'20, section 4.2); what
is made of it here (`keep_alive`) is not.
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
"""Buckets from one length to its double: an edge is at most 19 % from any length."""
OCTAVES: Final = 16
"""From `SHORTEST` to 18 h; longer idle times are "longer than all edges", which nobody keeps a model warm for."""
SHORTEST: Final = 1.0
"""s; what is shorter no tick can tell apart."""
BUCKETS: Final = PER_OCTAVE * OCTAVES + 1
"""The first is from 0 to `SHORTEST`."""
KEPT: Final = 256
"""Idle times whose weight a history has at most: enough to tell 5 % from 10 %, and of one in 5 minutes a day."""

EDGES: Final[FloatArray] = np.concatenate([[0.0], SHORTEST * 2.0 ** (np.arange(BUCKETS) / PER_OCTAVE)])
"""Seconds, `BUCKETS` + 1 of them: bucket b is from `EDGES[b]` to `EDGES[b + 1]`."""


@dataclass(slots=True)
class IdleHistory:
    """Of one model. `counts` by bucket, the last cell for what is longer than all edges. With the same weights: how
    often work began, `total`, and in how many `seconds`.
    """

    counts: NDArray[np.float32] = field(default_factory=lambda: np.zeros(BUCKETS + 1, np.float32))
    total: float = 0.0
    seconds: float = 0.0

    def note(self, idle: float, busy: float) -> None:
        """An idle time of `idle` seconds has ended; before it there was work for `busy` seconds."""
        kept = 1.0 if self.total < KEPT else 1.0 - 1.0 / KEPT
        self.counts *= np.float32(kept)
        self.counts[bucket_of(idle)] += 1.0
        self.total = self.total * kept + 1.0
        self.seconds = self.seconds * kept + max(0.0, idle) + max(0.0, busy)

    def begin(self, watched: float) -> None:
        """The first request of all came, `watched` seconds after one began to look: an idle time of unknown length."""
        self.total += 1.0
        self.seconds += max(0.0, watched)

    def rate(self, idle: float) -> float:
        """How often work begins in a second, on average; it has not for the last `idle` seconds."""
        lasted = self.seconds + max(0.0, idle)
        return self.total / lasted if lasted > 0.0 else 0.0


def bucket_of(seconds: float) -> int:
    """The bucket of an idle time; `BUCKETS` where it is longer than all edges."""
    if not seconds >= SHORTEST:
        return 0
    return min(BUCKETS, 1 + int(math.log2(seconds / SHORTEST) * PER_OCTAVE))


def counts_of(histories: Sequence[IdleHistory]) -> FloatArray:
    """A row for each history, `BUCKETS` + 1 cells."""
    rows = [history.counts for history in histories]
    return np.array(rows, np.float64).reshape(len(rows), BUCKETS + 1)
