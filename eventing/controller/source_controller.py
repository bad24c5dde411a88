"""The controller of EventSources: writes the condition Ready and the number of pending events to their status.

Nothing else depends on the condition. The webhook adds the events that it recorded since to the number (`backlog.py`).
Secrets are read by name and polled, because a role that allows only certain names does not allow a watch.
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
from eventing.controller.source_status import READY, Readiness, pending_to_report, step_of
from eventing.limits import DEFAULTS as LIMITS
from eventing.mapping.event_source import Reach, pending_of, read_event_source
from eventing.objects.apis import LABEL_EVENT_SOURCE, MANAGER
from eventing.objects.model_event import is_pending
from eventing.objects.ports import OidcAuth

SOON: Final = 1.0
"""Minimum seconds until an EventSource that is not ready is checked again. The wait equals the time since the condition
changed, from this to `LONGEST_WAIT`."""
LONGEST_WAIT: Final = 60.0
"""Maximum seconds of that wait: a user who has just created a Secret wants to see the result."""
READY_WAIT: Final = 300.0
"""Seconds until a ready EventSource is checked again."""
COUNT_WAIT: Final = 1.0
"""Seconds that a changed number of pending events is delayed, to combine it with further changes."""
AT_ONCE: Final = 4
"""EventSources reconciled concurrently: one whose Secret is slow to read does not block the others."""


class EventSourceController:
    """Writes the statuses of EventSources. Create it before `informers.run()`, because it registers its informers.

    `reach`: whether EventSources of a namespace may change Models in others; `most`: the webhook's limit on the pending
    events of one EventSource.
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
        self._new: Counter[Key] = Counter()
        self.controller = Controller("event source", self.reconcile, workers=AT_ONCE)
        self.controller.watches(self._sources)
        informers[MODEL_EVENT].subscribe(self._observe_event)

    async def run(self) -> None:
        """Run until cancelled; starts once every informer has its first list."""
        await self._informers.synced()
        await self.controller.run()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one EventSource; return the seconds until the next check. Raises ClusterError.

        The number of pending events is written even if the Secret cannot be read.
        """
        obj = self._sources.get(key.name, key.namespace)
        if obj is None:
            del self._new[key]
            return None
        try:
            ready = await self._readiness(obj)
        except ClusterError:
            await self._write_status(key, obj, {})
            raise
        former = (obj.get("status") or {}).get("conditions") or []
        conditions = with_condition(former, READY, ready.status, self._clock.now(), ready.reason, ready.message)
        await self._write_status(key, obj, {"observedGeneration": generation_of(obj), "conditions": conditions})
        if ready.status == "True":
            return READY_WAIT
        since = (condition_of(obj, READY) or {}).get("lastTransitionTime")
        passed = (self._clock.now() - parse_timestamp(str(since))).total_seconds() if since else 0.0
        return min(max(SOON, passed), LONGEST_WAIT)

    async def _write_status(self, key: Key, obj: Object, wanted: dict[str, Any]) -> None:
        """Write the fields of `wanted` and the number of pending events, as far as they differ from the status."""
        new = self._new[key]
        if (pending := self._pending_to_report(key, obj)) is not None:
            # The time makes it a new state even if the number is equal, so that webhooks restart their own count.
            wanted |= {"pending": pending, "countedAt": self._clock.now().isoformat()}
        status = obj.get("status") or {}
        change = {name: value for name, value in wanted.items() if status.get(name) != value}
        if change:
            await self._cluster.patch(
                EVENT_SOURCE, key.name, {"status": change}, key.namespace, manager=MANAGER, subresource="status"
            )
            self._new[key] -= new if "countedAt" in change else 0

    def _observe_event(self, before: Object | None, after: Object | None) -> None:
        former, sender = _source_of_pending(before), _source_of_pending(after)
        if former == sender:
            return
        if former is not None:
            self._count(former, -1, 0)
        if sender is not None:
            self._count(sender, 1, int(before is None))

    def _count(self, key: Key, pending: int, new: int) -> None:
        self._pending[key] += pending
        self._new[key] += new
        source = self._sources.get(key.name, key.namespace)
        if not self._pending[key]:
            del self._pending[key]
            if source is None:
                del self._new[key]
        if source is not None and self._pending_to_report(key, source) is not None:
            self.controller.queue.add_after(key, COUNT_WAIT)

    def _pending_to_report(self, key: Key, source: Object) -> int | None:
        return pending_to_report(pending_of(source), self._pending[key], self._new[key], self._step)

    async def _readiness(self, obj: Object) -> Readiness:
        """Return the condition. Raises ClusterError if the Secret cannot be read at present."""
        try:
            source = read_event_source(obj)
        except Invalid as error:
            return source_status.of_unreadable(error)
        if wrong := source_status.of_rights(source, self._reach):
            return wrong
        if isinstance(source.auth, OidcAuth):
            return source_status.of_tokens(source.auth)
        name = source.auth.secret
        try:
            secret = await self._cluster.get(SECRET, name, source.namespace)
        except NotFound:
            return source_status.of_keys(source, name, None)
        except Forbidden:
            return source_status.of_forbidden(source, name)
        return source_status.of_keys(source, name, keys_of(secret))


def _source_of_pending(event: Object | None) -> Key | None:
    """Return the EventSource of a pending event, else None. It comes from a label, which users may change."""
    if event is None or not is_pending(event):
        return None
    name = labels_of(event).get(LABEL_EVENT_SOURCE)
    return Key(namespace_of(event), name) if name else None
