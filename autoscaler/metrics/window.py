"""How much work there was lately: exact averages over time buckets, for all revisions at once.

A row is a revision. It has `BUCKETS` buckets of `width` seconds (1 s for windows up to 60 s, else window ÷ 60), each
with slot-seconds of work, slot-seconds that replicas which did not answer may have held, and seconds that readings
cover. A reading speaks of an interval and is spread over the buckets by overlap. Time that no reading covers is not
counted as idle: an average is work ÷ covered seconds, NaN when nothing is covered. Times are monotonic seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoscaler.scaling.table import FloatArray, IntArray

BUCKETS = 60  # of 1 s: the default stable window
FINEST = 1.0  # s; readings come once a second


class Averages(NamedTuple):
    """Slots in use, slots possibly in use on silent replicas (both NaN without data), and seconds covered."""

    work: FloatArray
    missing: FloatArray
    covered: FloatArray


class Windows:
    """The buckets of all rows."""

    def __init__(self, rows: int) -> None:
        self._work = np.zeros((rows, BUCKETS), np.float32)
        self._missing = np.zeros((rows, BUCKETS), np.float32)
        self._covered = np.zeros((rows, BUCKETS), np.float32)
        self._newest = np.zeros(rows, np.int64)
        self._width = np.full(rows, FINEST)

    def grow(self, rows: int) -> None:
        """Make room for `rows` rows; those that exist stay."""
        more = rows - len(self._newest)
        wide = ((0, more), (0, 0))
        self._work, self._missing, self._covered = (
            np.pad(one, wide) for one in (self._work, self._missing, self._covered)
        )
        self._newest = np.pad(self._newest, (0, more))
        self._width = np.pad(self._width, (0, more), constant_values=FINEST)

    def reset(self, row: int, longest: float) -> None:
        """Forget all of a row; from now on it is to answer for windows up to `longest` seconds."""
        for values in (self._work, self._missing, self._covered):
            values[row] = 0.0
        self._newest[row] = 0
        self._width[row] = max(FINEST, longest / BUCKETS)

    def record(self, rows: IntArray, start: FloatArray, end: float, work: FloatArray, missing: FloatArray) -> None:
        """Add readings: `work` and `missing` slots on average from `start` to `end`; each row at most once."""
        width = self._width[rows]
        start = np.maximum(start, end - BUCKETS * width)
        first = np.floor_divide(start, width).astype(np.int64)
        last = self._bucket(end, width)
        self._advance(rows, last)
        for offset in range(int((last - first).max(initial=-1)) + 1):
            bucket = first + offset
            seconds = np.minimum(end, (bucket + 1) * width) - np.maximum(start, bucket * width)
            seconds = np.where(last - bucket < BUCKETS, np.maximum(seconds, 0.0), 0.0)
            at = (rows, bucket % BUCKETS)
            self._work[at] += work * seconds
            self._missing[at] += missing * seconds
            self._covered[at] += seconds

    def average(self, rows: IntArray, window: FloatArray, now: float) -> Averages:
        """Over the last `window` seconds up to and with the bucket of `now`."""
        width = self._width[rows]
        newest = self._newest[rows]
        behind = self._bucket(now, width) - newest
        length = np.clip(np.ceil(window / width), 1, BUCKETS)
        age = (newest[:, None] - np.arange(BUCKETS)) % BUCKETS + behind[:, None]
        kept = age < length[:, None]
        work, missing, covered = (
            np.where(kept, values[rows], np.float32(0.0)).sum(axis=1, dtype=np.float64)
            for values in (self._work, self._missing, self._covered)
        )
        known = np.where(covered > 0.0, covered, np.nan)
        return Averages(work / known, missing / known, np.asarray(covered))

    @staticmethod
    def _bucket(at: float, width: FloatArray) -> IntArray:
        """The bucket in which the time up to `at` ends: a moment at a bucket's end opens no new one."""
        bucket: IntArray = np.ceil(at / width).astype(np.int64) - 1
        return bucket

    def _advance(self, rows: IntArray, last: IntArray) -> None:
        """Empty the buckets that come into use."""
        newest = self._newest[rows]
        ahead = np.minimum(last - newest, BUCKETS)
        for offset in range(int(ahead.max(initial=0))):
            moved = offset < ahead
            at = (rows[moved], (last[moved] - offset) % BUCKETS)
            for values in (self._work, self._missing, self._covered):
                values[at] = 0.0
        self._newest[rows] = np.maximum(newest, last)
