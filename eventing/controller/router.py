"""Of the events that wait for one Model: which is applied, and what becomes of the others. Pure.

The outcome is that of events which came one by one, in the order of their arrival; those in between cost nothing. An
event is settled only by what is applied already: one that a newer one beats waits until that has been applied, since it
may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from clusters.base.objects import Key
from eventing.objects.model_event import ModelEvent
from eventing.objects.order import Mark, mark_of


@dataclass(frozen=True, slots=True)
class Routed:
    """`winner` is to be applied; `done` were applied before; `older` came too late; `beaten` are older than the winner.

    All in the order of arrival; copies of what was applied, which the ledger had forgotten, are the first of `older`.
    `unorderable` are neither older nor newer than the newest applied event; `undecided` neither than the winner.
    """

    winner: ModelEvent | None
    done: tuple[ModelEvent, ...] = ()
    older: tuple[ModelEvent, ...] = ()
    beaten: tuple[ModelEvent, ...] = ()
    unorderable: tuple[ModelEvent, ...] = ()
    undecided: tuple[ModelEvent, ...] = ()


def route(pending: Sequence[ModelEvent], newest: Mark | None) -> Routed:
    """What becomes of the events that wait for a Model whose newest applied event is `newest`."""
    ordered = [(event, mark_of(event.spec, event.arrival)) for event in sorted(pending, key=_arrival)]
    done, others = _parted(ordered, lambda mark: newest is not None and mark.is_same(newest))
    again, others = _parted(others, lambda mark: newest is not None and newest.is_after(mark))
    winner, standing = None, newest
    for event, mark in others:
        if standing is None or mark.is_newer(standing):
            winner, standing = event, mark
    losers = [one for one in others if one[0] is not winner]
    unorderable, losers = _parted(losers, lambda mark: newest is not None and not mark.is_orderable(newest))
    older, beaten = _parted(losers, lambda mark: newest is not None and not mark.is_newer(newest))
    undecided, beaten = _parted(beaten, lambda mark: standing is not None and not mark.is_orderable(standing))
    return Routed(
        winner, _events(done), _events([*again, *older]), _events(beaten), _events(unorderable), _events(undecided)
    )


Marked = tuple[ModelEvent, Mark]


def _arrival(event: ModelEvent) -> tuple[datetime, Key]:
    return event.spec.received_at, event.key


def _events(marked: Iterable[Marked]) -> tuple[ModelEvent, ...]:
    return tuple(event for event, _ in marked)


def _parted(events: Iterable[Marked], test: Callable[[Mark], bool]) -> tuple[list[Marked], list[Marked]]:
    """Those that pass the test, and the others."""
    passed: list[Marked] = []
    failed: list[Marked] = []
    for one in events:
        (passed if test(one[1]) else failed).append(one)
    return passed, failed
