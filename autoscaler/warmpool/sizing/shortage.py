"""How often a pool has no free member for a start: Erlang's loss formula, for starts that may come in crowds.

Each claim is followed by the start of a member in its place, so that of `size` members those are missing that were
claimed within the last refill; a start that finds none waits for no member, it goes the cold way. That is a telephone
exchange of `size` lines in which a call lasts a refill: for independent starts the chance that all are taken depends on
starts times refill alone, not on how refills spread (A. K. Erlang 1917; B. A. Sevastyanov 1957 for any spread). Starts
that come in crowds, so that their number in a refill has `peakedness` times the variance of independent ones, are as
scarce for `size` members as independent ones for `size / peakedness` (W. S. Hayward's approximation; Fredericks 1980).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

SPANS: Final = 10
"""Refills that must have been watched before their starts tell anything of crowds."""


def chance_of_none(size: int, load: float, peakedness: float = 1.0) -> float:
    """Share of starts that find no free member; `load` is starts a second times seconds of a refill."""
    return next(itertools.islice(chances_of_none(load, peakedness), size, None))


def chances_of_none(load: float, peakedness: float = 1.0) -> Iterator[float]:
    """The same for 0 members, 1, 2 … without end; sizes that are no whole number of crowds by ratio between two."""
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
    """By how much `chance` (of these) grows with `load`: what one more start takes from all others."""
    if size == 0 or load <= 0.0:
        return 0.0
    return chance * max(0.0, size / load - 1.0 + chance) / peakedness


def peakedness_of(times: Sequence[float], refill: float, since: float, now: float) -> float:
    """Variance by mean of the starts in spans of a refill, from `since` to `now`; at least 1 (independent starts)."""
    spans = int((now - since) / refill) if refill > 0.0 else 0
    if spans < SPANS or not times:
        return 1.0
    counts, _ = np.histogram(np.asarray(times), bins=spans, range=(now - spans * refill, now))
    mean = float(counts.mean())
    return max(1.0, float(counts.var(ddof=1)) / mean) if mean > 0.0 else 1.0
