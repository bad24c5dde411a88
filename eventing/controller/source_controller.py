"""The controller of EventSources: their status says whether anybody can send by them, and how many events wait.

Nothing else depends on the condition; the webhook adds what it took since to the number (`backlog.py`). Secrets are
asked for by name, and now and then: where keys may be read by their names only, nobody can watch them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Forbidden, Invalid, NotFound
from clusters.base.objects import (
    EVENT_SOURCE,
    MODEL_EVENT,
    SECRET,
    Key,
    Object,
    condition_of,
    generation_of,
    labels_of,
    namespace_of,
    parse_timestamp,
    with_condition,
)
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from eventing.auth.hmac_keys import keys_of
from eventing.controller import source_status
from eventing.controller.source_status import READY, Readiness, said_pending, step_of
from eventing.limits import DEFAULTS as LIMITS
from eventing.mapping.event_source import EventSource, Reach, pending_of, read_event_source
from eventing.objects.apis import LABEL_EVENT_SOURCE, MANAGER
from eventing.objects.model_event import is_pending
from eventing.objects.ports import OidcAuth

SOON: Final = 1.0
"""s until one that is not ready is looked at again: as long as it has been so, from this on."""
LONGEST_WAIT: Final = 60.0
"""s: somebody who has just made a Secret wants to see that it was the right one."""
READY_WAIT: Final = 300.0
"""s until one that is ready is looked at again."""
COUNT_WAIT: Final = 1.0
"""s that a new number waits for others."""
AT_ONCE: Final = 4
"""EventSources: a Secret that is long in coming holds one of them."""


class EventSourceController:
    """Writes the statuses of EventSources. Make it before `informers.run()`: it asks for the informers it needs.

    `reach`: which of them may speak of Models in other namespaces; `most`: events of one that a webhook lets wait.
    """

    def __init__(
        self, cluster: Cluster, informers: Informers, *, clock: Clock, reach: Reach, most: int = LIMITS.pending
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._clock = clock
        self._reach = reach
        self._step = step_of(most)
        self._sources = informers[EVENT_SOURCE]
        self._pending: Counter[Key] = Counter()
        self._seen: Counter[Key] = Counter()
        self.controller = Controller("event source", self.reconcile, workers=AT_ONCE)
        self.controller.watches(self._sources)
        informers[MODEL_EVENT].subscribe(self._count)

    async def run(self) -> None:
        """Work until cancelled, once every informer holds its first list."""
        await self._informers.synced()
        await self.controller.run()

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns seconds until the next look. Raises ClusterError, what is known being written."""
        obj = self._sources.get(key.name, key.namespace)
        if obj is None:
            del self._seen[key]
            return None
        try:
            ready = await self._ready(obj)
        except ClusterError:
            await self._say(key, obj, {})
            raise
        await self._say(key, obj, self._condition(obj, ready))
        return READY_WAIT if ready.status == "True" else self._wait(obj)

    async def _say(self, key: Key, obj: Object, wanted: dict[str, Any]) -> None:
        """Write what the status is to say and does not: `wanted`, and how many wait."""
        seen = self._seen[key]
        if (pending := self._said(key, obj)) is not None:
            wanted |= {"pending": pending, "countedAt": self._clock.now().isoformat()}  # another state to see
        status = obj.get("status") or {}
        change = {name: value for name, value in wanted.items() if status.get(name) != value}
        if change:
            await self._cluster.patch(
                EVENT_SOURCE, key.name, {"status": change}, key.namespace, manager=MANAGER, subresource="status"
            )
            self._seen[key] -= seen if "countedAt" in change else 0

    def _count(self, before: Object | None, after: Object | None) -> None:
        former, sender = _waiting_of(before), _waiting_of(after)
        if former == sender:
            return
        if former is not None:
            self._counted(former, -1, 0)
        if sender is not None:
            self._counted(sender, 1, int(before is None))

    def _counted(self, key: Key, waiting: int, seen: int) -> None:
        self._pending[key] += waiting
        self._seen[key] += seen
        source = self._sources.get(key.name, key.namespace)
        if not self._pending[key]:
            del self._pending[key]
            if source is None:
                del self._seen[key]
        if source is not None and self._said(key, source) is not None:
            self.controller.queue.add_after(key, COUNT_WAIT)

    def _said(self, key: Key, source: Object) -> int | None:
        return said_pending(pending_of(source), self._pending[key], self._seen[key], self._step)

    def _condition(self, obj: Object, ready: Readiness) -> dict[str, Any]:
        former = (obj.get("status") or {}).get("conditions") or []
        return {
            "observedGeneration": generation_of(obj),
            "conditions": with_condition(former, READY, ready.status, self._clock.now(), ready.reason, ready.message),
        }

    def _wait(self, obj: Object) -> float:
        since = (condition_of(obj, READY) or {}).get("lastTransitionTime")
        passed = (self._clock.now() - parse_timestamp(str(since))).total_seconds() if since else 0.0
        return min(max(SOON, passed), LONGEST_WAIT)

    async def _ready(self, obj: Object) -> Readiness:
        """Raises ClusterError while the Secret cannot be had."""
        try:
            source = read_event_source(obj)
        except Invalid as error:
            return source_status.of_unreadable(error)
        if wrong := source_status.of_rights(source, self._reach):
            return wrong
        if isinstance(source.auth, OidcAuth):
            return source_status.of_tokens(source.auth)
        return await self._of_secret(source, source.auth.secret)

    async def _of_secret(self, source: EventSource, name: str) -> Readiness:
        try:
            secret = await self._cluster.get(SECRET, name, source.namespace)
        except NotFound:
            return source_status.of_keys(source, name, None)
        except Forbidden:
            return source_status.of_forbidden(source, name)
        return source_status.of_keys(source, name, keys_of(secret))


def _waiting_of(event: Object | None) -> Key | None:
    """The EventSource of an event that waits; people may change its labels."""
    if event is None or not is_pending(event):
        return None
    name = labels_of(event).get(LABEL_EVENT_SOURCE)
    return Key(namespace_of(event), name) if name else None
