"""Which of two events is the newer one, and what a Model remembers of the newest that was applied to it. Pure.

Of two events of one source that both have `sequence`, that decides (`sequence.py`); else `time`; else the arrival, by
the order in the store, or by the webhooks' clocks where that is unknown.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from clusters.base.objects import Object, annotations_of, uid_of
from eventing.objects.apis import ANNOTATION_NEWEST, Part
from eventing.objects.model_event import Spec, event_name
from eventing.objects.sequence import EventSequence

REMEMBERED: Final = 16
"""Events that were applied before the newest one: a copy of one of them has no second effect, even when the ledger has
forgotten it and the order has nothing but its arrival. A Model has one such change in a minute of a storm."""


SET_BACK: Final = timedelta(minutes=1)
"""By which a later arrival may seem earlier: webhooks' clocks differ by less; beyond it a clock was set back."""


class Mark(Part, frozen=True):
    """What tells an event from others, and when it was: all that the order needs.

    `arrival`: its place in the store, 0 where it is not known. On a Model alone: `applied`, names of the events that it
    had before, the last one first; `model`, its uid: another Model's mark is of another store.
    """

    source: str
    id: str
    received_at: datetime
    time: datetime | None = None
    sequence: str = ""
    sequencetype: str = ""
    arrival: int = 0
    applied: tuple[str, ...] = ()
    model: str = ""

    @property
    def name(self) -> str:
        """The same for every copy."""
        return event_name(self.source, self.id)

    def is_same(self, other: Mark) -> bool:
        """Whether both are copies of one event."""
        return (self.source, self.id) == (other.source, other.id)

    def is_after(self, other: Mark) -> bool:
        """Whether `other` was applied before this one was."""
        return bool(self.applied) and other.name in self.applied

    def is_orderable(self, other: Mark) -> bool:
        """Return whether the sequences of both allow one order only."""
        return self._compare_sequences(other) is not None

    def is_newer(self, other: Mark) -> bool:
        """Return whether it comes after `other`; neither does if they are not orderable."""
        if (order := self._compare_sequences(other)) != 0:
            return order is not None and order > 0
        if self._was_set_back(other) or other._was_set_back(self):
            return self.arrival > other.arrival  # times are bounded by the arrival, and say nothing either
        if self.time is not None and other.time is not None and self.time != other.time:
            return self.time > other.time
        if self.arrival and other.arrival and self.arrival != other.arrival:
            return self.arrival > other.arrival
        return (self.received_at, self.id) > (other.received_at, other.id)

    def _compare_sequences(self, other: Mark) -> int | None:
        if self.source != other.source:
            return 0
        theirs = EventSequence(other.sequence, other.sequencetype)
        return EventSequence(self.sequence, self.sequencetype).compare(theirs)

    def _was_set_back(self, other: Mark) -> bool:
        """Whether the clock was, between the arrival of `other` and that of this one."""
        is_later = bool(other.arrival) and self.arrival > other.arrival
        return is_later and other.received_at - self.received_at > SET_BACK

    def to_text(self) -> str:
        """As it stands in the Model's annotation."""
        return msgspec.json.encode(self).decode()


def mark_of(spec: Spec, arrival: int = 0) -> Mark:
    """Of an event. Nothing happens after it was told: a sender whose clock is ahead does not outdo all that follow."""
    time = min(spec.time, spec.received_at) if spec.time is not None else None
    return Mark(spec.source, spec.id, spec.received_at, time, spec.sequence, spec.sequencetype, arrival)


def mark_after(spec: Spec, newest: Mark | None, arrival: int = 0, model: str = "") -> Mark:
    """Of an event that is applied where `newest` was the newest, to the Model with that uid."""
    former = (newest.name, *newest.applied)[:REMEMBERED] if newest is not None else ()
    return msgspec.structs.replace(mark_of(spec, arrival), applied=former, model=model)


def newest_of(model: Object) -> Mark | None:
    """The newest event that was applied to the Model; None when there was none, or somebody wrote nonsense over it."""
    text = annotations_of(model).get(ANNOTATION_NEWEST)
    try:
        mark = msgspec.json.decode(text, type=Mark) if text else None
    except msgspec.MsgspecError:
        return None
    if mark is not None and mark.model != uid_of(model):
        return msgspec.structs.replace(mark, arrival=0)
    return mark
