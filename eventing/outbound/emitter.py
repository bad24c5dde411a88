"""The emitter: what the outboxes of Models hold becomes ModelEvents that go out, and these go to the event sink.

Two loops. One empties outboxes: the ModelEvents are created first and the entries taken out after that, by names that
make a repetition a copy. The other sends what waits, of each Model in its order: an event that is not taken keeps those
behind it waiting until it is, or until it has had its tries and is a dead letter. So each event is sent at least once,
over restarts, and in order but for replays; those of a deleted Model too, unless we end before they are kept. One that
the store refuses for good is passed over, and the Model tells so. Without a sink nothing is sent, and all is kept for
`trace`.
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
from eventing.objects.apis import MANAGER
from eventing.objects.model_event import (
    ModelEvent,
    Spec,
    Status,
    event_name,
    is_pending,
    model_of,
    read_model_event,
    wants_replay,
)
from eventing.objects.outbox import Entry, outbox_of
from eventing.objects.outgoing import in_order, is_outgoing, make_outgoing, read_outgoing, waiting_for
from eventing.objects.status import Statuses
from eventing.outbound.service_events import Translate, as_it_is
from eventing.outbound.sink import NotDelivered, Sink
from eventing.outbound.spans import Spans, span_of_event, span_of_rollout
from eventing.retries import wait_after

log = logging.getLogger(__name__)

WAITING: Final = "to be sent"
"""The informer's index of events that wait for the sink, by the key of their Model."""
Parting = Callable[[Object, datetime], Sequence[Entry]]
"""From a Model as it was last seen, and now."""

AT_ONCE: Final = 16
"""Models whose events are under way together: a sink that hangs holds one of them for its timeout."""
TOLD: Final = 600.0
"""s after which whoever ran meanwhile has told a deleted Model's last words: many times what a failover takes. Told
again after their ModelEvents have expired, they would be sent a second time."""
PATIENCE: Final = 3.0
"""s that the end waits for the collector of spans."""
SILENT: Final = Status("Ignored", "NoSink", "no event sink is set")
WORDLESS: Final = Status("Ignored", "NoWord", "the format that the sink gets has no word for it")


class Emitter:
    """Sends what became of rollouts. Make it before `informers.run()`; `sink` None: nobody is told."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        sink: Sink | None,
        clock: Clock,
        recorder: Recorder,
        translate: Translate = as_it_is,
        spans: Spans | None = None,
        parting: Parting = lambda model, _now: outbox_of(model),
    ) -> None:
        """`parting`: what a Model that is gone leaves to be told, the same for whoever saw it go."""
        self._cluster = cluster
        self._informers = informers
        self._sink = sink
        self._clock = clock
        self._recorder = recorder
        self._translate = translate
        self._spans = spans
        self._parting = parting
        self._statuses = Statuses(cluster, clock)
        self._gone: dict[Key, list[tuple[float, Entry]]] = {}  # with the monotonic seconds of the deletion
        self._runs = False
        self._models, self._events, self._sources = informers[MODEL], informers[MODEL_EVENT], informers[EVENT_SOURCE]
        self.outboxes = Controller("outbox", self.empty)
        self.controller = Controller("emitter", self.send, workers=AT_ONCE)
        self._events.add_index(WAITING, waiting_for)
        self._events.subscribe(self._statuses.observe)
        self._events.subscribe(self._wake)
        self._events.subscribe(self._trace_event)
        self._models.subscribe(self._look_into)

    def _look_into(self, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None and (left := self._parting(before, self._clock.now())):
            self._forget_told()
            now = self._clock.monotonic()
            self._gone.setdefault(key_of(before), []).extend((now, entry) for entry in left)
            self.outboxes.queue.add(key_of(before))
        if after is not None and (after.get("status") or {}).get("outbox"):
            self.outboxes.queue.add(key_of(after))

    def _forget_told(self) -> None:
        """While another one runs: what it had time to tell."""
        if self._runs:
            return
        oldest = self._clock.monotonic() - TOLD
        young = {key: [one for one in left if one[0] >= oldest] for key, left in self._gone.items()}
        self._gone = {key: left for key, left in young.items() if left}

    def _wake(self, _before: Object | None, after: Object | None) -> None:
        for model in waiting_for(after) if after is not None else ():
            self.controller.queue.add(_key_of(model))

    def _trace_event(self, before: Object | None, after: Object | None) -> None:
        """An event that came is over once it was applied or put aside."""
        if self._spans is None or before is None or after is None or is_outgoing(after):
            return
        if is_pending(before) and not is_pending(after):
            with suppress(Invalid):
                if (span := span_of_event(read_model_event(after))) is not None:
                    self._spans.record(span)

    async def empty(self, key: Key) -> None:
        """One pass over the outbox of the Model `key`."""
        await self._keep_of_deleted(key)
        obj = self._models.get(key.name, key.namespace)
        if obj is None or not (obj.get("status") or {}).get("outbox"):
            return
        await self._keep(key, outbox_of(obj))
        taken_out = {"metadata": {"resourceVersion": version_of(obj)}, "status": {"outbox": None}}
        with suppress(NotFound):
            await self._cluster.patch(MODEL, key.name, taken_out, key.namespace, manager=MANAGER, subresource="status")

    async def _keep_of_deleted(self, key: Key) -> None:
        left = self._gone.pop(key, [])
        if not left:
            return
        try:
            await self._keep(key, [entry for _, entry in left])
        except ClusterError:
            self._gone[key] = [*left, *self._gone.get(key, ())]
            raise

    async def _keep(self, key: Key, entries: Sequence[Entry]) -> None:
        """Make their ModelEvents, one after the other: none is sent while an older one is not kept.

        Raises ClusterError when one of them is not kept and may be; one that never will be is passed over.
        """
        now = self._clock.now()
        for entry in entries:
            obj = make_outgoing(key, entry, self._cause_of(key, entry), now)
            try:
                await self._cluster.create(MODEL_EVENT, obj, manager=MANAGER)
            except AlreadyExists:
                continue
            except NotFound:
                log.warning("event %s is lost: its namespace is gone", entry.id)
            except Invalid as error:
                await self._refused(key, entry, error)
            else:
                self._trace_rollout(entry, obj)

    async def _refused(self, key: Key, entry: Entry, error: Invalid) -> None:
        """It would be refused again, and those behind it would wait for ever."""
        said = f"outcome event {entry.id} is lost: {error}"
        log.warning("%s: %s", key, said)
        if (model := self._models.get(key.name, key.namespace)) is not None:
            await self._recorder.event(MODEL, model, "Warning", "OutcomeEventLost", said)

    def _cause_of(self, key: Key, entry: Entry) -> Spec | None:
        """The event that caused it, if it is still there: one for this Model, in the namespace of an EventSource."""
        if not entry.causationid:
            return None
        name = event_name(entry.causationsource, entry.causationid)
        for namespace in (key.namespace, *sorted({namespace_of(source) for source in self._sources})):
            obj = self._events.get(name, namespace)
            if obj is not None and model_of(obj) == key:
                with suppress(Invalid):  # one of another version of ours
                    return read_model_event(obj).spec
        return None

    def _trace_rollout(self, entry: Entry, obj: Object) -> None:
        span = span_of_rollout(entry, obj["spec"].get("traceparent", ""))
        if self._spans is not None and span is not None:
            self._spans.record(span)

    async def send(self, key: Key) -> float | None:
        """One pass over the events of the Model `key` that wait; returns seconds until the next try, or None."""
        for event in await self._pending(key):
            wait = self._wait(event)
            if wait <= 0:
                wait = await self._offer(event)
            if wait > 0:
                return wait
        return None

    async def _pending(self, key: Key) -> list[ModelEvent]:
        """What waits, in order; what is no event of ours is told so."""
        found = []
        for obj in self._statuses.unsettled(self._events.indexed(WAITING, str(key))):
            try:
                found.append(read_outgoing(obj))
            except Invalid as error:
                await self._statuses.settle([(obj, Status("Failed", error.reason, str(error)))])
        return in_order(found)

    def _wait(self, event: ModelEvent) -> float:
        if event.status.retry_at is None or wants_replay(event.object):
            return 0.0
        return (event.status.retry_at - self._clock.now()).total_seconds()

    async def _offer(self, event: ModelEvent) -> float:
        """Send it, and note what became of that; returns seconds until it is to be tried again, 0 when it is done."""
        translated = self._translate(event.spec.data)
        if self._sink is None or translated is None:
            await self._settle(event, SILENT if self._sink is None else WORDLESS)
            return 0.0
        try:
            answer = await self._sink.send(translated)
        except NotDelivered as error:
            return await self._failed(event, error)
        await self._settle(event, Status("Applied", "Delivered", answer))
        return 0.0

    async def _failed(self, event: ModelEvent, error: NotDelivered) -> float:
        attempts = 1 + (0 if wants_replay(event.object) else event.status.attempts)
        wait = wait_after(attempts) if error.again else None
        if wait is None:
            await self._settle(event, Status("Failed", "NotDelivered", str(error), attempts))
            log.warning("event %s of %s: %s", event.spec.id, event.spec.source, error)
            await self._recorder.event(MODEL_EVENT, event.object, "Warning", "EventNotDelivered", str(error))
            return 0.0
        wait = max(wait, error.retry_after)
        retry_at = self._clock.now() + timedelta(seconds=wait)
        await self._settle(event, Status("Accepted", "NotDelivered", str(error), attempts, retry_at))
        return wait

    async def _settle(self, event: ModelEvent, status: Status) -> None:
        await self._statuses.settle([(event.object, status)])

    async def run(self) -> None:
        """Work until cancelled, once every informer holds its first list; then the sink is closed."""
        await self._informers.synced()
        self._forget_told()
        self._runs = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.outboxes.run())
                group.create_task(self.controller.run())
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._sink is not None:
            await self._sink.close()
        if self._spans is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.to_thread(self._spans.close)


def _key_of(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return Key(namespace, name)
