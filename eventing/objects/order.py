"""The order of events, and the record of the newest applied event on a Model. Pure.

Two events of one source that both have `sequence` are ordered by it (`sequence.py`); others by `time`; others by
arrival: in the store's order, or by the webhooks' clocks if that is unknown.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from clusters.base.objects import Object, annotations_of, uid_of
from eventing.objects.apis import ANNOTATION_NEWEST, ObjectPart
from eventing.objects.model_event import EventSpec, event_name
from eventing.objects.sequence import EventSequence

REMEMBERED: Final = 16
"""Number of events applied before the newest one that a Model records. A duplicate of one of them has no second effect,
even if its ModelEvent was deleted and only arrival orders it. In a storm a Model has one change a minute."""


SET_BACK: Final = timedelta(minutes=1)
"""Maximum time by which a later arrival may seem earlier, because webhooks' clocks differ; beyond it, a clock was set
back."""


class EventMark(ObjectPart, frozen=True):
    """The identity and the times of an event, as far as the order needs them.

    `arrival`: its place in the store's order, 0 if unknown. Only on a Model: `applied`, the names of events applied
    before, latest first; `model`, the Model's uid, because arrivals of another Model's mark belong to another store.
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
        """Name of the ModelEvent; duplicates have the same name."""
        return event_name(self.source, self.id)

    def is_same(self, other: EventMark) -> bool:
        """Return whether both are the same event."""
        return (self.source, self.id) == (other.source, other.id)

    def is_after(self, other: EventMark) -> bool:
        """Return whether `other` is recorded as applied before this event."""
        return bool(self.applied) and other.name in self.applied

    def is_orderable(self, other: EventMark) -> bool:
        """Return whether the sequences of both allow one order only."""
        return self._compare_sequences(other) is not None

    def is_newer(self, other: EventMark) -> bool:
        """Return whether it comes after `other`; neither does if they are not orderable."""
        if (order := self._compare_sequences(other)) != 0:
            return order is not None and order > 0
        if self._was_set_back(other) or other._was_set_back(self):
            return self.arrival > other.arrival  # `time` is bounded by the arrival, so it is unreliable too
        if self.time is not None and other.time is not None and self.time != other.time:
            return self.time > other.time
        if self.arrival and other.arrival and self.arrival != other.arrival:
            return self.arrival > other.arrival
        return (self.received_at, self.id) > (other.received_at, other.id)

    def _compare_sequences(self, other: EventMark) -> int | None:
        if self.source != other.source:
            return 0
        theirs = EventSequence(other.sequence, other.sequencetype)
        return EventSequence(self.sequence, self.sequencetype).compare(theirs)

    def _was_set_back(self, other: EventMark) -> bool:
        """Return whether the clock was set back between the arrival of `other` and that of this event."""
        is_later = bool(other.arrival) and self.arrival > other.arrival
        return is_later and other.received_at - self.received_at > SET_BACK

    def to_text(self) -> str:
        """Return the JSON for the Model's annotation."""
        return msgspec.json.encode(self).decode()


def mark_of(spec: EventSpec, arrival: int = 0) -> EventMark:
    """Return the mark of an event.

    `time` is limited to the arrival, so that a sender whose clock is ahead does not supersede all later events.
    """
    time = min(spec.time, spec.received_at) if spec.time is not None else None
    return EventMark(spec.source, spec.id, spec.received_at, time, spec.sequence, spec.sequencetype, arrival)


def mark_after(spec: EventSpec, newest: EventMark | None, arrival: int = 0, model: str = "") -> EventMark:
    """Return the mark of an event that is applied after `newest` to the Model with the uid `model`."""
    former = (newest.name, *newest.applied)[:REMEMBERED] if newest is not None else ()
    return msgspec.structs.replace(mark_of(spec, arrival), applied=former, model=model)


def newest_of(model: Object) -> EventMark | None:
    """Return the mark of the newest event applied to the Model, None without one or if the annotation is malformed."""
    text = annotations_of(model).get(ANNOTATION_NEWEST)
    try:
        mark = msgspec.json.decode(text, type=EventMark) if text else None
    except msgspec.MsgspecError:
        return None
    if mark is not None and mark.model != uid_of(model):
        return msgspec.structs.replace(mark, arrival=0)
    return mark
