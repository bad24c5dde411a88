"""Which row is whose: revisions by key, and the numbers of their rows in all tables of a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np

from autoscaler.scaling.table import IntArray, Rows
from clusters.base.objects import Key

FIRST_ROWS = 64
NOBODY = -1


class Roster:
    """Numbers from 0 on, the smallest free one first, so that rows of many revisions lie side by side."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._keys: list[Key | None] = [None] * FIRST_ROWS
        self._free = list(range(FIRST_ROWS))[::-1]

    def __contains__(self, key: Key) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._numbers))

    @property
    def rows(self) -> int:
        """How many rows the tables need."""
        return len(self._keys)

    def add(self, key: Key) -> int:
        """A new key's number; the tables may need more `rows` after it."""
        if not self._free:
            self._free = list(range(self.rows, 2 * self.rows))[::-1]
            self._keys += [None] * self.rows
        number = self._numbers[key] = self._free.pop()
        self._keys[number] = key
        return number

    def remove(self, key: Key) -> int | None:
        """The number that is free from now on; None when the key is not here."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._keys[number] = None
            self._free.append(number)
        return number

    def number(self, key: Key) -> int:
        """The row of a key. Raises KeyError."""
        return self._numbers[key]

    def numbers(self, keys: Iterable[Key]) -> IntArray:
        """The rows of those that are here."""
        found = np.array([*map(self._numbers.get, keys, repeat(NOBODY))], np.int64)
        here: IntArray = found[found != NOBODY]
        return here

    def known(self, keys: Iterable[Key]) -> list[Key]:
        """Those that are here."""
        return list(filter(self._numbers.__contains__, keys))

    def keys(self, numbers: IntArray) -> list[Key]:
        """Whose rows these are; rows that are nobody's are left out."""
        found = (self._keys[number] for number in numbers.tolist())
        return [key for key in found if key is not None]


def compact(numbers: IntArray) -> Rows:
    """The same rows as a slice where they lie side by side, which spares copies of them."""
    first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
    beside = last - first + 1 == len(numbers) and bool((numbers[1:] > numbers[:-1]).all())
    return slice(first, last + 1) if beside else numbers
