"""The pending events of each Model. Each version of an event is parsed once, however many passes use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from clusters.base.errors import Invalid
from clusters.base.objects import Key, Object, key_of
from clusters.runtime.informer import Informer
from eventing.objects.model_event import ModelEvent, is_pending, model_of, read_model_event
from eventing.objects.status import Statuses

PENDING: Final = "pending"
"""Name of the informer's index of pending events by the key of their Model."""


class WaitingEvents(NamedTuple):
    """The pending events of a Model: `events`, `malformed` ones, and whether a retry is due at a time not seen yet."""

    events: Sequence[ModelEvent]
    malformed: Sequence[tuple[Object, Invalid]]
    has_unseen_retry: bool


class PendingEvents:
    """An index of pending events by Model. Create it before the informer runs."""

    def __init__(self, informer: Informer, statuses: Statuses) -> None:
        self._informer = informer
        self._statuses = statuses
        self._parsed: dict[Key, ModelEvent] = {}
        informer.add_index(PENDING, _index_keys)
        informer.subscribe(self._observe)

    def of(self, model: Key) -> WaitingEvents:
        """Return the Model's pending events, without those whose status was written since the informer's version."""
        objects = self._informer.indexed(PENDING, str(model))
        unwritten = self._statuses.unwritten(objects)
        events: list[ModelEvent] = []
        malformed: list[tuple[Object, Invalid]] = []
        for obj in unwritten:
            key = key_of(obj)
            try:
                known = self._parsed.get(key)
                if known is None or known.object is not obj:
                    known = self._parsed[key] = read_model_event(obj)
                events.append(known)
            except Invalid as error:
                malformed.append((obj, error))
        has_unseen_retry = len(unwritten) < len(objects) and self._statuses.has_unseen_retry(objects)
        return WaitingEvents(events, malformed, has_unseen_retry)

    def _observe(self, before: Object | None, _after: Object | None) -> None:
        if before is not None:
            self._parsed.pop(key_of(before), None)


def _index_keys(obj: Object) -> list[str]:
    model = model_of(obj)
    return [str(model)] if model is not None and is_pending(obj) else []
