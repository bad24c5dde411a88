"""The typical start time of a revision's replicas."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from autoscaler.scaling.table import NAN

QUANTILE = 0.75  # most starts are shorter; a single very long start has little effect
KEPT = 8  # latest starts; few, so that the result follows changes


class StartTimes:
    """The latest starts of one revision."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)

    def record(self, seconds: float) -> None:
        """Add a start of `seconds`, from the request for a replica to its readiness. Others than positive finite
        numbers are ignored.
        """
        if math.isfinite(seconds) and seconds > 0.0:
            self._latest.append(seconds)

    def typical(self) -> float:
        """Return the 0.75 quantile of the latest starts in seconds; NaN before the first."""
        return float(np.quantile(self._latest, QUANTILE)) if self._latest else NAN
