"""The emitter: turns the outboxes of Models into outgoing ModelEvents, and sends those to the event sink.

One loop empties outboxes: it creates the ModelEvents first and removes the entries afterwards; fixed names make a
repetition harmless. The other loop sends the pending ModelEvents of each Model in order. An event that is not accepted
blocks those behind it until it is, or until its attempts are used up and it is a dead letter. Each event is therefore
sent at least once, over restarts, and in order except for replays. This includes the events of a deleted Model, unless
the process ends before they are stored. An event that the store refuses permanently is skipped, with a Kubernetes Event
on the Model. Without a sink nothing is sent, and the events are kept for `knodel events trace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, ClusterError, Invalid, NotFound
from clusters.base.objects import EVENT_SOURCE, MODEL, MODEL_EVENT, Key, Object, key_of, namespace_of, version_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.backoff import wait_after
from eventing.objects.apis import MANAGER
from eventing.objects.model_event import (
    EventSpec,
    EventStatus,
    ModelEvent,
    event_name,
    is_pending,
    model_of,
    read_model_event,
    wants_replay,
)
from eventing.objects.outbox import OutboxEntry, outbox_of
from eventing.objects.outgoing import in_order, is_outgoing, make_outgoing, read_outgoing, waiting_for
from eventing.objects.status import Statuses
from eventing.outbound.service_events import Translate, as_is
from eventing.outbound.sink import NotDelivered, Sink
from eventing.outbound.spans import Spans, span_of_event, span_of_rollout

log = logging.getLogger(__name__)

PENDING: Final = "to be sent"
"""Name of the informer's index of pending outgoing events by the key of their Model."""
FinalEntries = Callable[[Object, datetime], Sequence[OutboxEntry]]
"""Returns the last entries of a deleted Model, given its last version and the present time."""

AT_ONCE: Final = 16
"""Models whose events are sent concurrently: a hanging sink occupies one slot per Model for its timeout."""
REPORTED: Final = 600.0
"""Seconds after which the active emitter has certainly stored the last events of a deleted Model: many times the
duration of a failover. A standby drops them then; stored again after their ModelEvents expired, they would be sent
twice."""
CLOSE_TIMEOUT: Final = 3.0
"""Maximum seconds that shutdown waits for the trace collector."""
NO_SINK: Final = EventStatus("Ignored", "NoSink", "no event sink is configured")
NO_WORD: Final = EventStatus("Ignored", "NoWord", "the sink's format has no type for this event")


class Emitter:
    """Sends events about rollouts. Create it before `informers.run()`; without a `sink` nothing is sent."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        sink: Sink | None,
        clock: Clock,
        recorder: Recorder,
        translate: Translate = as_is,
        spans: Spans | None = None,
        final_entries: FinalEntries = lambda model, _now: outbox_of(model),
    ) -> None:
        """`final_entries`: must return the same entries in every replica that observes a deletion."""
        self._cluster = cluster
        self._informers = informers
        self._sink = sink
        self._clock = clock
        self._recorder = recorder
        self._translate = translate
        self._spans = spans
        self._final_entries = final_entries
        self._statuses = Statuses(cluster, clock)
        self._deleted: dict[Key, list[tuple[float, OutboxEntry]]] = {}  # with the monotonic time of the deletion
        self._is_running = False
        self._models, self._events, self._sources = informers[MODEL], informers[MODEL_EVENT], informers[EVENT_SOURCE]
        self.outboxes = Controller("outbox", self.empty)
        self.controller = Controller("emitter", self.send, workers=AT_ONCE)
        self._events.add_index(PENDING, waiting_for)
        self._events.subscribe(self._statuses.observe)
        self._events.subscribe(self._observe_event)
        self._models.subscribe(self._observe_model)

    def _observe_model(self, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None and (left := self._final_entries(before, self._clock.now())):
            self._drop_reported()
            now = self._clock.monotonic()
            self._deleted.setdefault(key_of(before), []).extend((now, entry) for entry in left)
            self.outboxes.queue.add(key_of(before))
        if after is not None and (after.get("status") or {}).get("outbox"):
            self.outboxes.queue.add(key_of(after))

    def _drop_reported(self) -> None:
        """On a standby, drop the entries that the active emitter has had the time to store."""
        if self._is_running:
            return
        oldest = self._clock.monotonic() - REPORTED
        young = {key: [one for one in left if one[0] >= oldest] for key, left in self._deleted.items()}
        self._deleted = {key: left for key, left in young.items() if left}

    def _observe_event(self, before: Object | None, after: Object | None) -> None:
        """Enqueue the Model of an outgoing event, and record the span of a received event that is finished."""
        for model in waiting_for(after) if after is not None else ():
            namespace, _, name = model.partition("/")
            self.controller.queue.add(Key(namespace, name))
        if self._spans is None or before is None or after is None or is_outgoing(after):
            return
        if is_pending(before) and not is_pending(after):
            with suppress(Invalid):
                if (span := span_of_event(read_model_event(after))) is not None:
                    self._spans.record(span)

    async def empty(self, key: Key) -> None:
        """Move the entries in the outbox of the Model `key` to ModelEvents. Raises ClusterError."""
        if left := self._deleted.pop(key, []):
            try:
                await self._store(key, [entry for _, entry in left])
            except ClusterError:
                self._deleted[key] = [*left, *self._deleted.get(key, ())]
                raise
        obj = self._models.get(key.name, key.namespace)
        if obj is None or not (obj.get("status") or {}).get("outbox"):
            return
        await self._store(key, outbox_of(obj))
        emptied = {"metadata": {"resourceVersion": version_of(obj)}, "status": {"outbox": None}}
        with suppress(NotFound):
            await self._cluster.patch(MODEL, key.name, emptied, key.namespace, manager=MANAGER, subresource="status")

    async def _store(self, key: Key, entries: Sequence[OutboxEntry]) -> None:
        """Create the ModelEvents one after another, because none may be sent before an older one is stored.

        Raises ClusterError if one may be stored later; one that never can is skipped.
        """
        now = self._clock.now()
        for entry in entries:
            obj = make_outgoing(key, entry, self._cause_of(key, entry), now)
            try:
                await self._cluster.create(MODEL_EVENT, obj, manager=MANAGER)
            except AlreadyExists:
                continue
            except NotFound:
                log.warning("event %s is lost: its namespace was deleted", entry.id)
            except Invalid as error:
                # Skipped, because a retry would fail again and block the entries behind it.
                message = f"outcome event {entry.id} is lost: {error}"
                log.warning("%s: %s", key, message)
                if (model := self._models.get(key.name, key.namespace)) is not None:
                    await self._recorder.event(MODEL, model, "Warning", "OutcomeEventLost", message)
            else:
                span = span_of_rollout(entry, obj["spec"].get("traceparent", ""))
                if self._spans is not None and span is not None:
                    self._spans.record(span)

    def _cause_of(self, key: Key, entry: OutboxEntry) -> EventSpec | None:
        """Return the event that caused the entry, if it exists: for this Model, in the namespace of an EventSource."""
        if not entry.causationid:
            return None
        name = event_name(entry.causationsource, entry.causationid)
        for namespace in (key.namespace, *sorted({namespace_of(source) for source in self._sources})):
            obj = self._events.get(name, namespace)
            if obj is not None and model_of(obj) == key:
                with suppress(Invalid):  # written by another release
                    return read_model_event(obj).spec
        return None

    async def send(self, key: Key) -> float | None:
        """Send the pending events of the Model `key`; return the seconds until the next attempt, or None."""
        for event in await self._pending(key):
            wait = 0.0
            if event.status.retry_at is not None and not wants_replay(event.object):
                wait = (event.status.retry_at - self._clock.now()).total_seconds()
            if wait <= 0:
                wait = await self._attempt(event)
            if wait > 0:
                return wait
        return None

    async def _pending(self, key: Key) -> list[ModelEvent]:
        """Return the Model's pending events in order; malformed ones get the phase Failed."""
        found = []
        for obj in self._statuses.unwritten(self._events.indexed(PENDING, str(key))):
            try:
                found.append(read_outgoing(obj))
            except Invalid as error:
                await self._statuses.write([(obj, EventStatus("Failed", error.reason, str(error)))])
        return in_order(found)

    async def _attempt(self, event: ModelEvent) -> float:
        """Send the event and write its status; return the seconds until its next attempt, 0 if it is finished."""
        translated = self._translate(event.spec.data)
        if self._sink is None or translated is None:
            await self._statuses.write([(event.object, NO_SINK if self._sink is None else NO_WORD)])
            return 0.0
        try:
            answer = await self._sink.send(translated)
        except NotDelivered as error:
            return await self._record_failure(event, error)
        await self._statuses.write([(event.object, EventStatus("Applied", "Delivered", answer))])
        return 0.0

    async def _record_failure(self, event: ModelEvent, error: NotDelivered) -> float:
        attempts = 1 + (0 if wants_replay(event.object) else event.status.attempts)
        wait = wait_after(attempts) if error.again else None
        if wait is None:
            await self._statuses.write([(event.object, EventStatus("Failed", "NotDelivered", str(error), attempts))])
            log.warning("event %s of %s: %s", event.spec.id, event.spec.source, error)
            await self._recorder.event(MODEL_EVENT, event.object, "Warning", "EventNotDelivered", str(error))
            return 0.0
        wait = max(wait, error.retry_after)
        retry_at = self._clock.now() + timedelta(seconds=wait)
        await self._statuses.write(
            [(event.object, EventStatus("Accepted", "NotDelivered", str(error), attempts, retry_at))]
        )
        return wait

    async def run(self) -> None:
        """Run until cancelled, then close the sink; starts once every informer has its first list."""
        await self._informers.synced()
        self._drop_reported()
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.outboxes.run())
                group.create_task(self.controller.run())
        finally:
            if self._sink is not None:
                await self._sink.close()
            if self._spans is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await asyncio.to_thread(self._spans.close)
