"""The EventSources that let events in: when an event has its effect they still have to allow what it asks."""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, Forbidden, Invalid, NotFound
from clusters.base.objects import EVENT_SOURCE, Key
from clusters.runtime.informer import Informer
from eventing.auth.permits import refusal
from eventing.controller.target import Seen, Target
from eventing.mapping.event_source import EventSource, read_event_source
from eventing.objects.model_event import ModelEvent
from eventing.objects.ports import Mapped

Refused = tuple[ModelEvent, ClusterError]
"""An event, and why it never has an effect."""


class Senders:
    """Over an informer of EventSources; the cluster is asked for one that it does not show."""

    def __init__(self, cluster: Cluster, informer: Informer, target: Target) -> None:
        self._cluster = cluster
        self._informer = informer
        self._target = target

    async def of(self, event: ModelEvent) -> EventSource:
        """Whose event it is. Raises Forbidden when it may not ask for this any more, and other ClusterErrors."""
        source = await self._read(Key(event.key.namespace, event.spec.event_source))
        if words := refusal(source, _mapped(event)):
            raise Forbidden(words)
        return source

    async def refused(self, events: Iterable[ModelEvent], seen: Seen) -> list[Refused]:
        """Those of the events of one Model that no repetition helps, as far as can be told without trying them."""
        known: dict[Key, EventSource | ClusterError] = {}
        found = []
        for event in events:
            key = Key(event.key.namespace, event.spec.event_source)
            if key not in known:
                try:
                    known[key] = await self._read(key)
                except ClusterError as error:
                    known[key] = error
            refused = self._refusal(event, known[key], seen)
            if refused is not None:
                found.append((event, refused))
        return found

    def _refusal(self, event: ModelEvent, source: EventSource | ClusterError, seen: Seen) -> ClusterError | None:
        if isinstance(source, ClusterError):
            return source if isinstance(source, Forbidden) else None
        words = refusal(source, _mapped(event))
        return Forbidden(words) if words else self._target.refusal(event, source, seen)

    async def _read(self, key: Key) -> EventSource:
        """Raises Forbidden for one that lets nobody in any more."""
        try:
            obj = self._informer.get(key.name, key.namespace)
            return read_event_source(obj or await self._cluster.get(EVENT_SOURCE, key.name, key.namespace))
        except (NotFound, Invalid) as exc:
            raise Forbidden(f"EventSource {key} lets nobody in any more: {exc}") from exc


def _mapped(event: ModelEvent) -> Mapped:
    spec = event.spec
    return Mapped(spec.id, spec.source, spec.time, spec.model, spec.change)
