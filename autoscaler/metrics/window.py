"""Exact averages of work over recent time windows, for all revisions at once.

A row is a revision. It has `BUCKETS` buckets of `width` seconds (1 s for windows up to 60 s, else window ÷ 60). Stored
are running totals at the end of each bucket: slot-seconds of work, slot-seconds that unanswering replicas may have
used, and seconds covered by readings. The content of a window of any length is the difference of two totals. A reading
covers an interval and is spread over the buckets by overlap. Time without a reading does not count as idle: an average
is work ÷ covered seconds, and NaN when no time is covered. Times are monotonic seconds.

Totals are counted from a time at most two windows ago: each row is rebased once every `BUCKETS` buckets. Therefore
single precision is enough for the buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from autoscaler.scaling.table import FloatArray, IntArray, Rows

BUCKETS = 60  # of 1 s: the default stable window
FINEST = 1.0  # s; readings come once a second
NEVER = -(1 << 40)  # a bucket before all others
WORK, WORK_ALONE = (0, 1, 2), (0, 2)  # indices of totals: work, missing and covered
LEAST = 1e-3  # s: readings of a shorter time are ignored


class Averages(NamedTuple):
    """Slots in use, slots possibly in use on unanswering replicas (both NaN without data), and seconds covered."""

    work: FloatArray
    missing: FloatArray
    covered: FloatArray


class Windows:
    """The totals of all rows."""

    def __init__(self, rows: int) -> None:
        self._totals = np.zeros((3, rows))  # up to the last reading
        self._ends = np.zeros((3, BUCKETS, rows), np.float32)  # at the ends of the buckets before the newest
        self._newest = np.full(rows, NEVER)  # the bucket in which the last reading ends
        self._width = np.full(rows, FINEST)

    @property
    def nbytes(self) -> int:
        """Memory of all rows, in bytes."""
        return sum(one.nbytes for one in (self._totals, self._ends, self._newest, self._width))

    def grow(self, rows: int) -> None:
        """Make room for `rows` rows; existing rows stay."""
        more = rows - len(self._newest)
        self._totals = np.pad(self._totals, ((0, 0), (0, more)))
        self._ends = np.pad(self._ends, ((0, 0), (0, 0), (0, more)))
        self._newest = np.pad(self._newest, (0, more), constant_values=NEVER)
        self._width = np.pad(self._width, (0, more), constant_values=FINEST)

    def reset(self, row: int, longest: float) -> None:
        """Clear a row, which then supports windows up to `longest` seconds."""
        self._totals[:, row] = 0.0
        self._ends[:, :, row] = 0.0
        self._newest[row] = NEVER
        self._width[row] = max(FINEST, longest / BUCKETS)

    def record(self, rows: IntArray, start: FloatArray, end: float, work: FloatArray, missing: FloatArray) -> None:
        """Add readings: average `work` and `missing` slots from `start` to `end`; each row at most once."""
        width = self._width[rows]
        start = np.minimum(start, end)
        slots = np.stack([work, missing, np.ones_like(start)])
        totals = self._totals[:, rows]
        before = self._newest[rows]
        newest = np.maximum(_bucket(end, width), before)
        ended = np.minimum(newest - before, BUCKETS)
        for back in range(int(ended.max(initial=0)), 0, -1):  # buckets that end between `start` and `end`
            some = ended >= back
            bucket = newest[some] - back
            seconds = np.clip((bucket + 1) * width[some], start[some], end) - start[some]
            self._ends[:, bucket % BUCKETS, rows[some]] = totals[:, some] + slots[:, some] * seconds
        self._totals[:, rows] = totals + slots * (end - start)
        self._newest[rows] = newest
        self._set_back(rows[(newest + rows) // BUCKETS > (before + rows) // BUCKETS])

    def average(self, rows: Rows, window: FloatArray, now: float) -> Averages:
        """Return the averages over the last `window` seconds, including the bucket of `now`."""
        work, missing, covered = self._since(WORK, rows, window, now)
        known = _known(covered)
        return Averages(_ratio(work, known), _ratio(missing, known), covered)

    def work(self, rows: Rows, window: FloatArray, now: float) -> FloatArray:
        """Return the same average for the slots in use only."""
        work, covered = self._since(WORK_ALONE, rows, window, now)
        return _ratio(work, _known(covered))

    def _since(self, which: Sequence[int], rows: Rows, window: FloatArray, now: float) -> list[FloatArray]:
        """Return the increase of these totals within the window."""
        width, newest = self._width[rows], self._newest[rows]
        length = np.minimum(np.maximum(np.ceil(window / width), 1.0), BUCKETS).astype(np.int64)
        since = np.maximum(_bucket(now, width), newest) - length  # the bucket at whose end the window begins
        kept = since < newest
        where: tuple[Any, Any]
        if len(since) and since.min() == since.max():  # as for most rows: one slice is enough
            where = int(since[0]) % BUCKETS, rows
        else:
            where = since % BUCKETS, np.arange(len(self._newest))[rows]
        grown = [np.maximum(self._totals[one][rows] - self._ends[one][where], 0.0) for one in which]
        return grown if kept.all() else [one * kept for one in grown]

    def _set_back(self, rows: IntArray) -> None:
        """Rebase these rows to the end of their oldest bucket."""
        if len(rows):
            oldest = self._ends[:, self._newest[rows] % BUCKETS, rows]
            self._ends[:, :, rows] -= oldest[:, None, :]
            self._totals[:, rows] -= oldest


def _known(covered: FloatArray) -> FloatArray:
    """Return the seconds to divide by: NaN where no time is covered."""
    some = covered > LEAST
    return covered if some.all() else np.where(some, covered, np.nan)


def _ratio(total: FloatArray, seconds: FloatArray) -> FloatArray:
    return total / seconds if total.any() else total * seconds  # nothing missing, as nearly always: 0 or NaN at once


def _bucket(at: float, width: FloatArray) -> IntArray:
    """Return the bucket in which the time up to `at` ends. A time exactly at a bucket's end does not open a new
    bucket.
    """
    bucket: IntArray = np.ceil(at / width).astype(np.int64) - 1
    return bucket
