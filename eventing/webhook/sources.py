"""The EventSources of the cluster by the `source` attribute that they are for, kept by an informer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from clusters.base.errors import Invalid
from clusters.base.objects import Key, Object, key_of
from clusters.runtime.informer import Informer
from eventing.mapping.event_source import ANY, EventSource, Reach, read_event_source, within_reach

log = logging.getLogger(__name__)


class InformedSources:
    """`ports.Sources` over an informer of EventSources. One that cannot be read is logged and lets nobody in."""

    def __init__(self, informer: Informer, reach: Reach) -> None:
        self._reach = reach
        self._exact: dict[str, dict[Key, EventSource]] = {}
        self._prefixes: dict[Key, EventSource] = {}
        self._known: dict[Key, EventSource] = {}
        informer.subscribe(self._observe)

    def matching(self, source: str) -> Sequence[EventSource]:
        """Those for that `source` attribute: exact ones first, then longer prefixes, then by namespace and name."""
        found = [
            *self._exact.get(source, {}).values(),
            *(one for one in self._prefixes.values() if one.matches(source)),
        ]
        return found if len(found) < 2 else sorted(found, key=lambda one: one.rank)

    def named(self, namespace: str, name: str) -> EventSource | None:
        """One of them."""
        return self._known.get(Key(namespace, name))

    def _observe(self, before: Object | None, after: Object | None) -> None:
        for obj in (before, after):
            if obj is not None:
                self._forget(key_of(obj))
        if after is not None:
            try:
                self._learn(key_of(after), within_reach(read_event_source(after), self._reach))
            except Invalid as error:
                log.warning("%s: nobody is let in by it", error)

    def _learn(self, key: Key, source: EventSource) -> None:
        self._known[key] = source
        if source.source.endswith(ANY):
            self._prefixes[key] = source
        else:
            self._exact.setdefault(source.source, {})[key] = source

    def _forget(self, key: Key) -> None:
        source = self._known.pop(key, None)
        self._prefixes.pop(key, None)
        if source is not None and key in self._exact.get(source.source, {}):
            del self._exact[source.source][key]
            if not self._exact[source.source]:
                del self._exact[source.source]
