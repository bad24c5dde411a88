"""Placing on paper: which nodes have room for which replicas. Nothing is bound; the scheduler places the Pods.

Counting free units in total is not enough: a training Pod of 5 units that ends makes room for one server of 3 units, not
for more. So grants never exceed what fits node by node.

Each place has two numbers. `paper` are the units that no claim was granted yet, so that later claims lose what earlier
ones take. `idle` are those that nobody holds either. A new replica takes idle units if some place has enough (best
fit), else it displaces others where it displaces the fewest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from autoscaler.gpu.claims import Claim, Place, Shape

_BLOCKING: Final = ("NoSchedule", "NoExecute")
Taken = tuple[int, int]
"""The index of a place, and the idle units that were taken there."""


class Sums(NamedTuple):
    """Units of some places: all, those that nobody was granted, and all of the largest place."""

    total: int
    free: int
    largest: int


class Paper:
    """The places with their units on paper."""

    def __init__(self, places: Iterable[Place], claims: Iterable[Claim]) -> None:
        self._places = sorted(places, key=lambda place: (place.resource, place.node))
        self._index = {(place.resource, place.node): number for number, place in enumerate(self._places)}
        self._paper = [place.units for place in self._places]
        self._idle = list(self._paper)
        for claim in claims:
            for node, replicas in claim.held.items():
                if (number := self._index.get((claim.shape.resource, node))) is not None:
                    self._idle[number] -= min(self._idle[number], replicas * claim.shape.amount)
        self._fitting: dict[int, Sequence[int]] = {}  # of a shape, by its id: shapes live as long as the claims
        self._kinds: dict[tuple[Any, ...], Sequence[int]] = {}
        self._sums: dict[int, Sums] = {}

    def sums(self, shape: Shape) -> Sums:
        """Return the units of all places that fit the shape. Call it when everything is granted."""
        fitting = self.fitting(shape)
        found = self._sums.get(id(fitting))
        if found is None:
            units = [self._places[number].units for number in fitting]
            free = sum(self._paper[number] for number in fitting)
            found = self._sums[id(fitting)] = Sums(sum(units), free, max(units, default=0))
        return found

    def free(self, resource: str) -> int:
        """Return the units of a resource that no claim was granted yet."""
        return sum(units for place, units in zip(self._places, self._paper, strict=True) if place.resource == resource)

    def keep(self, claim: Claim, node: str) -> bool:
        """Grant a replica of one Pod that is held on the node. Return False if others were granted its units."""
        number = self._index.get((claim.shape.resource, node))
        if number is None or self._paper[number] < claim.shape.units:
            return False
        self._paper[number] -= claim.shape.units
        return True

    def place(self, shape: Shape) -> bool:
        """Grant a new replica, all its Pods or none."""
        done: list[Taken] = []
        for _ in range(shape.pods):
            taken = self._take(shape)
            if taken is None:
                self._undo(shape, done)
                return False
            done.append(taken)
        return True

    def mark(self) -> tuple[list[int], list[int]]:
        """Return the present state, for `restore`."""
        return list(self._paper), list(self._idle)

    def restore(self, state: tuple[list[int], list[int]]) -> None:
        """Return to a state of `mark`."""
        self._paper, self._idle = list(state[0]), list(state[1])

    def fitting(self, shape: Shape) -> Sequence[int]:
        """Return the places whose type, labels and taints fit the shape, those of the best type first."""
        found = self._fitting.get(id(shape))
        if found is None:
            selector = tuple(sorted(shape.node_selector.items()))
            kind = (shape.resource, shape.types, selector, repr(shape.tolerations))
            found = self._kinds.get(kind)
            if found is None:
                found = self._kinds[kind] = self._find(shape)
            self._fitting[id(shape)] = found
        return found

    def _find(self, shape: Shape) -> Sequence[int]:
        ranks = {type: rank for rank, type in enumerate(shape.types)}
        fitting = [
            number
            for number, place in enumerate(self._places)
            if place.resource == shape.resource
            and place.open
            and (not ranks or place.type in ranks)
            and _selects(shape.node_selector, place.labels)
            and _tolerates(shape.tolerations, place.taints)
        ]
        return sorted(fitting, key=lambda number: ranks.get(self._places[number].type, 0)) if ranks else fitting

    def _take(self, shape: Shape) -> Taken | None:
        """Take the units of one Pod: of the best type with room, where it leaves the least idle or displaces least."""
        units, paper, idle = shape.units, self._paper, self._idle
        best, best_rank = -1, (0, 0)
        kind = None
        for number in self.fitting(shape):
            if paper[number] < units:
                continue
            if shape.types:
                if best >= 0 and self._places[number].type != kind:
                    break  # the better type has room
                kind = self._places[number].type
            missing = units - idle[number]
            rank = (missing, paper[number]) if missing > 0 else (0, idle[number])
            if best < 0 or rank < best_rank:
                best, best_rank = number, rank
        if best < 0:
            return None
        taken = min(units, idle[best])
        paper[best] -= units
        idle[best] -= taken
        return best, taken

    def _undo(self, shape: Shape, done: Iterable[Taken]) -> None:
        for number, taken in done:
            self._paper[number] += shape.units
            self._idle[number] += taken


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in selector.items())


def _tolerates(tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]]) -> bool:
    return all(
        taint.get("effect") not in _BLOCKING or any(_matches(one, taint) for one in tolerations) for taint in taints
    )


def _matches(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
