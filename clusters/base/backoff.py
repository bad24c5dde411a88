"""Exponential back-off: the delay before each further attempt. Pure.

    delay(n) = min(largest, first · factor^n) · U,    n = 0, 1, 2 …

`U` is uniform between the two bounds of `jitter`, so that clients that failed together do not retry together. It is 1
where the caller passes no source of randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds that grow by `factor` from `first` up to `largest`.

    `jitter` holds the least and the greatest factor of a random delay. `largest` bounds the delay before jitter.

    Example:
        backoff = Backoff(first=0.1, largest=10.0, jitter=(0.9, 1.1))
        backoff.delay(0), backoff.delay(3), backoff.delay(1000)  # 0.1, 0.8, 10.0
        backoff.delay(3, random.random)                          # between 0.72 and 0.88
    """

    first: float
    largest: float
    factor: float = 2.0
    jitter: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        """Raise ValueError for delays that are negative, that shrink, or that exceed `largest`."""
        if not 0.0 <= self.first <= self.largest or self.factor < 1.0:
            raise ValueError(f"invalid back-off: {self} needs 0 <= first <= largest and factor >= 1")
        if not 0.0 <= self.jitter[0] <= self.jitter[1]:
            raise ValueError(f"invalid jitter {self.jitter}: needs 0 <= least <= greatest")

    def delay(self, attempt: int, chance: Callable[[], float] | None = None) -> float:
        """Return the seconds to wait after failure number `attempt`, which counts from 0.

        `chance` returns a uniform number in [0, 1), as `random.random` does; without it there is no jitter.
        Raises ValueError for a negative `attempt`.
        """
        if attempt < 0:
            raise ValueError(f"invalid attempt {attempt}: attempts count from 0")
        try:
            seconds = min(self.first * self.factor**attempt, self.largest)
        except OverflowError:
            seconds = self.largest if self.first else 0.0
        if chance is None:
            return seconds
        least, greatest = self.jitter
        return seconds * (least + (greatest - least) * chance())
