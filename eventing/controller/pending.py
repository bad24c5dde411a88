"""The events that wait for each Model, read once for each of their versions however many passes look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from clusters.base.errors import Invalid
from clusters.base.objects import Key, Object, key_of
from clusters.runtime.informer import Informer
from eventing.objects.model_event import ModelEvent, is_pending, model_of, read_model_event
from eventing.objects.status import Statuses

PENDING: Final = "pending"
"""The informer's index of events that something is still to be done with, by the key of their Model."""


class Waiting(NamedTuple):
    """`events` wait; `nonsense` are none; `is_ahead`: one is to be tried again, and when is not to be seen yet."""

    events: Sequence[ModelEvent]
    nonsense: Sequence[tuple[Object, Invalid]]
    is_ahead: bool


class PendingEvents:
    """By their Models. Make it before the informer runs."""

    def __init__(self, informer: Informer, statuses: Statuses) -> None:
        self._informer = informer
        self._statuses = statuses
        self._read: dict[Key, ModelEvent] = {}
        informer.add_index(PENDING, _waiting_for)
        informer.subscribe(self._observe)

    def of(self, model: Key) -> Waiting:
        """Those of a Model of which nothing was written since the state that they are in."""
        objects = self._informer.indexed(PENDING, str(model))
        unsettled = self._statuses.unsettled(objects)
        events: list[ModelEvent] = []
        nonsense: list[tuple[Object, Invalid]] = []
        for obj in unsettled:
            try:
                events.append(self._event(obj))
            except Invalid as error:
                nonsense.append((obj, error))
        return Waiting(events, nonsense, len(unsettled) < len(objects) and self._statuses.is_ahead(objects))

    def _event(self, obj: Object) -> ModelEvent:
        """Raises Invalid."""
        key = key_of(obj)
        known = self._read.get(key)
        if known is None or known.object is not obj:
            known = self._read[key] = read_model_event(obj)
        return known

    def _observe(self, before: Object | None, _after: Object | None) -> None:
        if before is not None:
            self._read.pop(key_of(before), None)


def _waiting_for(obj: Object) -> list[str]:
    model = model_of(obj)
    return [str(model)] if model is not None and is_pending(obj) else []
