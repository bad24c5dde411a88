"""An index from revision keys to the row numbers that all tables share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np

from autoscaler.scaling.table import IntArray, Rows
from clusters.base.objects import Key

FIRST_ROWS = 64
NO_ROW = -1


class RowIndex:
    """Row numbers from 0 on. The smallest free one is used first, so that many revisions have contiguous rows."""

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
        """The number of rows that the tables need."""
        return len(self._keys)

    def add(self, key: Key) -> int:
        """Return the row of a new key; afterwards, the tables may need more `rows`."""
        if not self._free:
            self._free = list(range(self.rows, 2 * self.rows))[::-1]
            self._keys += [None] * self.rows
        number = self._numbers[key] = self._free.pop()
        self._keys[number] = key
        return number

    def remove(self, key: Key) -> int | None:
        """Return the row that is free from now on, or None for an unknown key."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._keys[number] = None
            self._free.append(number)
        return number

    def number(self, key: Key) -> int:
        """Return the row of a key. Raises KeyError."""
        return self._numbers[key]

    def numbers(self, keys: Iterable[Key]) -> IntArray:
        """Return the rows of the known keys."""
        found = np.array([*map(self._numbers.get, keys, repeat(NO_ROW))], np.int64)
        here: IntArray = found[found != NO_ROW]
        return here

    def known(self, keys: Iterable[Key]) -> list[Key]:
        """Return the known keys."""
        return list(filter(self._numbers.__contains__, keys))

    def keys(self, numbers: IntArray) -> list[Key]:
        """Return the keys of these rows, without unused rows."""
        found = (self._keys[number] for number in numbers.tolist())
        return [key for key in found if key is not None]


def compact(numbers: IntArray) -> Rows:
    """Return contiguous rows as a slice, which avoids copies; other rows unchanged."""
    first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
    beside = last - first + 1 == len(numbers) and bool((numbers[1:] > numbers[:-1]).all())
    return slice(first, last + 1) if beside else numbers
