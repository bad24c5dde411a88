"""The chance that a pool has no free member for a start: Erlang's loss formula, for starts that may be clustered.

Each claim is followed by the start of a replacement member. Therefore the missing members are those claimed within the
last refill time. A start without a free member does not wait for one; it is a cold start. This corresponds to a
telephone exchange of `size` lines in which a call lasts a refill: for independent starts, the chance that all are busy
depends only on starts times refill, not on the distribution of refill times (A. K. Erlang 1917; B. A. Sevastyanov 1957
for any distribution). For clustered starts, whose number per refill has `peakedness` times the variance of independent
ones, `size` members suffice as well as `size / peakedness` for independent ones (W. S. Hayward's approximation;
Fredericks 1980).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

SPANS: Final = 10
"""Refill times that must have been observed before their starts determine the peakedness."""


def chance_of_none(size: int, load: float, peakedness: float = 1.0) -> float:
    """Return the share of starts without a free member; `load` is starts per second times seconds of a refill."""
    return next(itertools.islice(chances_of_none(load, peakedness), size, None))


def chances_of_none(load: float, peakedness: float = 1.0) -> Iterator[float]:
    """Yield the same for 0 members, 1, 2 …, infinitely. Sizes that are not multiples of the peakedness are interpolated
    by ratio.
    """
    load /= peakedness
    line, fewer, chance = 0, 1.0, 1.0
    for size in itertools.count():
        lines = size / peakedness
        while line < lines:
            line += 1
            fewer, chance = chance, load * chance / (line + load * chance)
        share = line - lines
        yield chance ** (1.0 - share) * fewer**share


def slope(size: int, load: float, peakedness: float, chance: float) -> float:
    """Return the derivative of `chance` with respect to `load`: the effect of one more start on all others."""
    if size == 0 or load <= 0.0:
        return 0.0
    return chance * max(0.0, size / load - 1.0 + chance) / peakedness


def peakedness_of(times: Sequence[float], refill: float, since: float, now: float) -> float:
    """Return the variance-to-mean ratio of starts per refill time, from `since` to `now`; at least 1 (independent
    starts).
    """
    spans = int((now - since) / refill) if refill > 0.0 else 0
    if spans < SPANS or not times:
        return 1.0
    counts, _ = np.histogram(np.asarray(times), bins=spans, range=(now - spans * refill, now))
    mean = float(counts.mean())
    return max(1.0, float(counts.var(ddof=1)) / mean) if mean > 0.0 else 1.0
