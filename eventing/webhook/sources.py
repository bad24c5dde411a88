"""An index of the cluster's EventSources by the `source` attributes that they accept, updated by an informer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from clusters.base.errors import Invalid
from clusters.base.objects import Key, Object, key_of
from clusters.runtime.informer import Informer
from eventing.mapping.event_source import Reach, read_event_source, within_reach
from eventing.objects.ports import ANY, EventSource

log = logging.getLogger(__name__)


class InformedSources:
    """`ports.Sources` over an informer. An EventSource that cannot be read is logged, and accepts no events."""

    def __init__(self, informer: Informer, reach: Reach) -> None:
        self._reach = reach
        self._exact: dict[str, dict[Key, EventSource]] = {}
        self._prefixes: dict[Key, EventSource] = {}
        self._known: dict[Key, EventSource] = {}
        informer.subscribe(self._observe)

    def matching(self, source: str) -> Sequence[EventSource]:
        """Return those that accept this `source`: exact ones, then longer prefixes, then by namespace and name."""
        found = [
            *self._exact.get(source, {}).values(),
            *(one for one in self._prefixes.values() if one.matches(source)),
        ]
        return found if len(found) < 2 else sorted(found, key=lambda one: one.rank)

    def named(self, namespace: str, name: str) -> EventSource | None:
        """Return the EventSource of that name, or None."""
        return self._known.get(Key(namespace, name))

    def _observe(self, before: Object | None, after: Object | None) -> None:
        for obj in (before, after):
            if obj is not None:
                self._delete(key_of(obj))
        if after is not None:
            try:
                self._add(key_of(after), within_reach(read_event_source(after), self._reach))
            except Invalid as error:
                log.warning("%s: it accepts no events until it is corrected", error)

    def _add(self, key: Key, source: EventSource) -> None:
        self._known[key] = source
        if source.source.endswith(ANY):
            self._prefixes[key] = source
        else:
            self._exact.setdefault(source.source, {})[key] = source

    def _delete(self, key: Key) -> None:
        source = self._known.pop(key, None)
        self._prefixes.pop(key, None)
        if source is not None and key in self._exact.get(source.source, {}):
            del self._exact[source.source][key]
            if not self._exact[source.source]:
                del self._exact[source.source]
