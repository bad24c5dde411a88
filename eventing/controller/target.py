"""The interface through which the controller of events reads and changes Models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clusters.base.errors import ClusterError
from clusters.base.objects import Object
from eventing.objects.apis import ModelRef
from eventing.objects.model_event import ModelEvent
from eventing.objects.order import EventMark, newest_of
from eventing.objects.ports import EventSource


@dataclass(frozen=True, slots=True)
class ObservedModel:
    """A Model as it was read, None if it does not exist. A change is only applied to this version of it."""

    object: Object | None = None

    @property
    def newest(self) -> EventMark | None:
        """The mark of the newest event applied to the Model."""
        return newest_of(self.object) if self.object is not None else None


@dataclass(frozen=True, slots=True)
class AppliedEvent:
    """The result of an applied event: the Model's generation afterwards, and a message of one line."""

    generation: int
    message: str


class EventTarget(Protocol):
    """Applies events to Models."""

    async def observe(self, model: ModelRef) -> ObservedModel:
        """Read the Model from the cluster. Raises ClusterError."""
        ...

    def refusal(self, event: ModelEvent, source: EventSource, model: ObservedModel) -> ClusterError | None:
        """Return the permanent error of applying the event to `model`, if it is known without trying; else None."""
        ...

    async def apply(self, event: ModelEvent, source: EventSource, model: ObservedModel) -> AppliedEvent:
        """Change the Model and record the event as its newest, both or neither.

        Raises Conflict if the Model has changed since `model` was read; NotFound, Invalid or Forbidden if no retry can
        succeed; other KnodelErrors if one may.
        """
        ...
