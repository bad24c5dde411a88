"""Placing on paper: which nodes have room for which replicas. Nothing is bound; the scheduler places the Pods.

Counting free units in total is not enough: a training Pod of 5 units that ends makes room for one server of 3
units, and no more. So grants never exceed what fits node by node.

Each place has two numbers. `paper` are the units that no claim was granted yet, so that later claims lose what earlier
ones take. `idle` are those of them that no claim holds either. A new replica takes idle units if some place has enough
(best fit), else it displaces others where it displaces the fewest.

Places that are equal for all claims form a class, and a class has its places by their two numbers. So a replica is
placed in a time that does not depend on the number of nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from autoscaler.gpu.claims import Claim, Place, Shape
from autoscaler.gpu.tolerations import is_tolerated

Pair = tuple[int, int]
"""Units of a place on paper, and idle ones."""


class Sums(NamedTuple):
    """Units of some places: all, those that no claim was granted, and all of the largest place."""

    total: int
    free: int
    largest: int


class _Class:
    """Places that are equal for all claims, by their pair of units."""

    __slots__ = ("members", "pairs", "sample")

    def __init__(self, sample: Place) -> None:
        self.sample = sample
        self.members: list[int] = []
        self.pairs: dict[Pair, dict[int, None]] = {}  # ordered sets

    def add(self, pair: Pair, number: int) -> None:
        self.pairs.setdefault(pair, {})[number] = None

    def move(self, number: int, before: Pair, after: Pair) -> None:
        pairs = self.pairs
        places = pairs[before]
        del places[number]
        if not places:
            del pairs[before]
        if after in pairs:
            pairs[after][number] = None
        else:
            pairs[after] = {number: None}

    def best(self, units: int) -> int:
        """Return the place for a Pod of so many units; -1 if none has room."""
        found, least = None, (units + 1, 0)
        for pair in self.pairs:
            paper, idle = pair
            if paper >= units:
                rank = (0, idle) if idle >= units else (units - idle, paper)
                if rank < least:
                    found, least = pair, rank
        return -1 if found is None else next(iter(self.pairs[found]))


class Paper:
    """The places with their units on paper."""

    def __init__(self, places: Iterable[Place], claims: Sequence[Claim]) -> None:
        self._places = sorted(places, key=lambda place: (place.resource, place.node))
        self._index = {(place.resource, place.node): number for number, place in enumerate(self._places)}
        held = [0] * len(self._places)
        for claim in claims:
            for node, replicas in claim.held.items():
                if (number := self._index.get((claim.shape.resource, node))) is not None:
                    held[number] += replicas * claim.shape.amount
        self._units = [
            place.units if place.open else min(place.units, taken)
            for place, taken in zip(self._places, held, strict=True)
        ]
        self._paper = list(self._units)
        self._idle = [max(0, units - taken) for units, taken in zip(self._units, held, strict=True)]
        self._classes = self._make_classes(claims)
        self._fitting: dict[int, tuple[_Class, ...]] = {}  # by the id of the shape
        self._alike: dict[Any, tuple[_Class, ...]] = {}  # by the parts of a shape that decide it
        self._full: dict[tuple[_Class, ...], int] = {}  # classes → the least units of a Pod that found no room
        self._sums: dict[tuple[_Class, ...], Sums] = {}
        self._log: list[tuple[int, int, int]] = []  # place, units on paper, idle units that were taken

    def free(self, resource: str) -> int:
        """Return the units of a resource that no claim was granted yet."""
        return sum(units for place, units in zip(self._places, self._paper, strict=True) if place.resource == resource)

    def sums(self, shape: Shape) -> Sums:
        """Return the units of all places that fit the shape. Call it when everything is granted."""
        fitting = self._classes_for(shape)
        found = self._sums.get(fitting)
        if found is None:
            numbers = [number for one in fitting for number in one.members]
            units = [self._units[number] for number in numbers]
            free = sum(self._paper[number] for number in numbers)
            found = self._sums[fitting] = Sums(sum(units), free, max(units, default=0))
        return found

    def keep(self, claim: Claim, node: str) -> bool:
        """Grant a replica of one Pod that is held on the node. Return False if others were granted its units."""
        number = self._index.get((claim.shape.resource, node))
        if number is None or self._paper[number] < claim.shape.units:
            return False
        self._take(number, claim.shape.units, 0)
        return True

    def place(self, shape: Shape) -> bool:
        """Grant a new replica, all its Pods or none."""
        classes, units = self._classes_for(shape), shape.units
        if units >= self._full.get(classes, units + 1):
            return False
        if shape.pods == 1:
            if not self._place_pod(classes, units):
                self._full[classes] = units
                return False
            return True
        mark = self.mark()
        for _ in range(shape.pods):
            if not self._place_pod(classes, units):
                self.restore(mark)
                return False
        return True

    def _place_pod(self, classes: Iterable[_Class], units: int) -> bool:
        for one in classes:  # those of a better type first
            if (number := one.best(units)) >= 0:
                idle = self._idle[number]
                self._take(number, units, idle if idle < units else units)
                return True
        return False

    def mark(self) -> int:
        """Return the present state, for `restore`."""
        return len(self._log)

    def restore(self, mark: int) -> None:
        """Undo everything since `mark`."""
        if len(self._log) > mark:
            self._full.clear()
        while len(self._log) > mark:
            number, units, idle = self._log.pop()
            self._set(number, self._paper[number] + units, self._idle[number] + idle)

    def _take(self, number: int, units: int, idle: int) -> None:
        self._log.append((number, units, idle))
        self._set(number, self._paper[number] - units, self._idle[number] - idle)

    def _set(self, number: int, paper: int, idle: int) -> None:
        if (place_class := self._class_of[number]) is not None:
            place_class.move(number, (self._paper[number], self._idle[number]), (paper, idle))
        self._paper[number], self._idle[number] = paper, idle

    def _make_classes(self, claims: Iterable[Claim]) -> tuple[_Class, ...]:
        """Group open places that are equal for all claims: only labels that some claim selects count."""
        selected = {name for claim in claims for name in claim.shape.node_selector}
        found: dict[Any, _Class] = {}
        self._class_of: list[_Class | None] = [None] * len(self._places)
        for number, place in enumerate(self._places):
            if not place.open:
                continue
            labels = tuple((name, place.labels.get(name)) for name in sorted(selected)) if selected else ()
            key = (place.resource, place.type, labels, repr(place.taints) if place.taints else "")
            one = self._class_of[number] = found.setdefault(key, _Class(place))
            one.members.append(number)
            one.add((self._paper[number], self._idle[number]), number)
        return tuple(found.values())

    def _classes_for(self, shape: Shape) -> tuple[_Class, ...]:
        """Return the classes that fit a shape, those of its best type first."""
        if (found := self._fitting.get(id(shape))) is not None:  # shapes live as long as the claims
            return found
        selector = tuple(shape.node_selector.items()) if shape.node_selector else ()
        key = (shape.resource, shape.types, selector, repr(shape.tolerations) if shape.tolerations else "")
        if (found := self._alike.get(key)) is None:
            ranks = defaultdict(int, {name: rank for rank, name in enumerate(shape.types)})
            fitting = [
                one
                for one in self._classes
                if one.sample.resource == shape.resource
                and (not shape.types or one.sample.type in shape.types)
                and all(one.sample.labels.get(name) == value for name, value in shape.node_selector.items())
                and all(is_tolerated(taint, shape.tolerations, (shape.resource,)) for taint in one.sample.taints)
            ]
            found = self._alike[key] = tuple(sorted(fitting, key=lambda one: ranks[one.sample.type]))
        self._fitting[id(shape)] = found
        return found
