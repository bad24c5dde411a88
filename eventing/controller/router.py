"""Selects the pending event of a Model that is applied, and classifies the others. Pure.

The result equals applying events one by one in the order of their arrival, without the cost of those in between. An
event is only superseded by an event that is applied already: while a newer event is pending, older ones wait, because
the newer one may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eventing.objects.model_event import ModelEvent
from eventing.objects.order import EventMark, mark_of


@dataclass(frozen=True, slots=True)
class Routed:
    """The pending events by what is done with them, each group in the order of arrival.

    `winner`: applied next; `done`: applied before; `older`: older than the newest applied event, with duplicates of
    applied events whose records were deleted first; `beaten`: older than the winner; `unorderable`: neither older nor
    newer than the newest applied event; `undecided`: neither older nor newer than the winner.
    """

    winner: ModelEvent | None
    done: tuple[ModelEvent, ...] = ()
    older: tuple[ModelEvent, ...] = ()
    beaten: tuple[ModelEvent, ...] = ()
    unorderable: tuple[ModelEvent, ...] = ()
    undecided: tuple[ModelEvent, ...] = ()


def route(pending: Sequence[ModelEvent], newest: EventMark | None) -> Routed:
    """Classify the pending events of a Model whose newest applied event is `newest`."""
    arrived = sorted(pending, key=lambda event: (event.spec.received_at, event.key))
    ordered = [(event, mark_of(event.spec, event.arrival)) for event in arrived]
    done, others = _partition(ordered, lambda mark: newest is not None and mark.is_same(newest))
    again, others = _partition(others, lambda mark: newest is not None and newest.is_after(mark))
    winner, best = None, newest
    for event, mark in others:
        if best is None or mark.is_newer(best):
            winner, best = event, mark
    losers = [one for one in others if one[0] is not winner]
    unorderable, losers = _partition(losers, lambda mark: newest is not None and not mark.is_orderable(newest))
    older, beaten = _partition(losers, lambda mark: newest is not None and not mark.is_newer(newest))
    undecided, beaten = _partition(beaten, lambda mark: best is not None and not mark.is_orderable(best))
    return Routed(
        winner, _events(done), _events([*again, *older]), _events(beaten), _events(unorderable), _events(undecided)
    )


Marked = tuple[ModelEvent, EventMark]


def _events(marked: Iterable[Marked]) -> tuple[ModelEvent, ...]:
    return tuple(event for event, _ in marked)


def _partition(events: Iterable[Marked], test: Callable[[EventMark], bool]) -> tuple[list[Marked], list[Marked]]:
    """Return the events whose mark passes the test, and the others."""
    passed: list[Marked] = []
    failed: list[Marked] = []
    for one in events:
        (passed if test(one[1]) else failed).append(one)
    return passed, failed
