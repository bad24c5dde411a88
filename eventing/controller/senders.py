"""Authorizes events again when they are applied: their EventSource may have changed since they were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, Forbidden, Invalid, NotFound
from clusters.base.objects import EVENT_SOURCE, Key
from clusters.runtime.informer import Informer
from eventing.auth import permits
from eventing.controller.target import EventTarget, ObservedModel
from eventing.mapping.event_source import read_event_source
from eventing.objects.model_event import ModelEvent
from eventing.objects.ports import EventSource, Mapped

Refused = tuple[ModelEvent, ClusterError]
"""An event, and the permanent error that keeps it from being applied."""


class Senders:
    """The EventSources of events, from an informer, or from the cluster if the informer does not have one yet."""

    def __init__(self, cluster: Cluster, informer: Informer, target: EventTarget) -> None:
        self._cluster = cluster
        self._informer = informer
        self._target = target

    async def authorize(self, event: ModelEvent) -> EventSource:
        """Return the event's EventSource. Raises Forbidden if it does not allow the change, and other ClusterErrors."""
        source = await self._read(Key(event.key.namespace, event.spec.event_source))
        if reason := permits.refusal(source, _mapped(event)):
            raise Forbidden(reason)
        return source

    async def refused(self, events: Iterable[ModelEvent], model: ObservedModel) -> list[Refused]:
        """Return the events of one Model that no retry can apply, as far as known without trying to apply them."""
        known: dict[Key, EventSource | ClusterError] = {}
        found = []
        for event in events:
            key = Key(event.key.namespace, event.spec.event_source)
            if key not in known:
                try:
                    known[key] = await self._read(key)
                except ClusterError as error:
                    known[key] = error
            refused = self._refusal(event, known[key], model)
            if refused is not None:
                found.append((event, refused))
        return found

    def _refusal(
        self, event: ModelEvent, source: EventSource | ClusterError, model: ObservedModel
    ) -> ClusterError | None:
        if isinstance(source, ClusterError):
            return source if isinstance(source, Forbidden) else None
        reason = permits.refusal(source, _mapped(event))
        return Forbidden(reason) if reason else self._target.refusal(event, source, model)

    async def _read(self, key: Key) -> EventSource:
        """Return the EventSource. Raises Forbidden if it is deleted or invalid."""
        try:
            obj = self._informer.get(key.name, key.namespace)
            return read_event_source(obj or await self._cluster.get(EVENT_SOURCE, key.name, key.namespace))
        except (NotFound, Invalid) as exc:
            raise Forbidden(f"EventSource {key} does not accept events any more: {exc}") from exc


def _mapped(event: ModelEvent) -> Mapped:
    spec = event.spec
    return Mapped(spec.id, spec.source, spec.time, spec.model, spec.change)
