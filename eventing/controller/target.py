"""What the controller of events needs of whoever has the Models: a narrow interface, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clusters.base.errors import ClusterError
from clusters.base.objects import Object
from eventing.mapping.event_source import EventSource
from eventing.objects.apis import ModelRef
from eventing.objects.model_event import ModelEvent
from eventing.objects.order import Mark, newest_of


@dataclass(frozen=True, slots=True)
class Seen:
    """A Model as it was read, None when there is none; a change has to meet this very version of it."""

    object: Object | None = None

    @property
    def newest(self) -> Mark | None:
        """The newest event that was applied to it."""
        return newest_of(self.object) if self.object is not None else None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an event did: the Model's generation afterwards, in one word and one line."""

    generation: int
    message: str


class Target(Protocol):
    """Where events have their effect."""

    async def look(self, model: ModelRef) -> Seen:
        """The Model as it is now. Raises ClusterError."""
        ...

    def refusal(self, event: ModelEvent, source: EventSource, seen: Seen) -> ClusterError | None:
        """Why it never has an effect on the Model as it was seen, if that can be told without trying; costs little."""
        ...

    async def apply(self, event: ModelEvent, source: EventSource, seen: Seen) -> Applied:
        """Change the Model and note the event as its newest, both or neither.

        Raises Conflict when the Model is another than `seen`, NotFound, Invalid and Forbidden for what no repetition
        helps, other KnodelErrors for what may.
        """
        ...
