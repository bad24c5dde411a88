"""The controller of ModelEvents: applies the newest pending event of each Model and supersedes the older ones.

One pass handles one Model, so its events are applied one after another. All state survives a restart: the newest
applied event is recorded on the Model in the same write as the change, and failed attempts are in the event's status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Conflict, Forbidden, Invalid, KnodelError, NotFound, TemporaryError
from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, Key, Object, key_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.backoff import ChangeBackoff, wait_after
from eventing.controller.pending import PendingEvents
from eventing.controller.router import Routed, route
from eventing.controller.senders import Refused, Senders
from eventing.controller.target import EventTarget, ObservedModel
from eventing.objects.apis import ModelRef
from eventing.objects.model_event import EventStatus, ModelEvent, is_pending, model_of, read_model_event, wants_replay
from eventing.objects.order import EventMark
from eventing.objects.outgoing import is_outgoing
from eventing.objects.status import Statuses

log = logging.getLogger(__name__)

COMPONENT = "knodel-eventing"
"""Reporting component of Kubernetes Events about ModelEvents, for the Recorder."""
RACES = 5
"""Maximum number of times that one pass repeats a change after a Conflict."""
PERMANENT: Final = (NotFound, Invalid, Forbidden)
"""Errors that no retry can fix."""


class _NotOrderable(ClusterError):
    """The sequences of an event and of the newest applied event allow no order."""

    reason = "NotOrderable"

    def __init__(self, event: ModelEvent, newest: EventMark) -> None:
        super().__init__(
            f"sequence {event.spec.sequence!r} cannot be ordered against {newest.sequence!r} of event {newest.id}: "
            "numbers of different lengths need sequencetype Integer; send the event again with it, under another id"
        )


class EventController:
    """Applies ModelEvents to Models. Create it before `informers.run()`, because it registers its informers."""

    def __init__(
        self, cluster: Cluster, informers: Informers, *, target: EventTarget, clock: Clock, recorder: Recorder
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._target = target
        self._clock = clock
        self._recorder = recorder
        self._backoff = ChangeBackoff()
        self._statuses = Statuses(cluster, clock)
        self._events = informers[MODEL_EVENT]
        self._senders = Senders(cluster, informers[EVENT_SOURCE], target)
        self.controller = Controller("event", self.reconcile)
        self.without_model = Controller("event without a model", self._reconcile_without_model, workers=1)
        self._events.subscribe(self._statuses.observe)
        self._pending = PendingEvents(self._events, self._statuses)
        self._events.subscribe(self._enqueue)

    async def run(self) -> None:
        """Run until cancelled; starts once every informer has its first list."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            group.create_task(self.without_model.run())
            group.create_task(self._statuses.run())

    def _enqueue(self, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None:
            self._enqueue(None, before)  # others may have waited for it
        if after is None or is_outgoing(after) or not is_pending(after):
            return
        model = model_of(after)
        if model is None:
            self.without_model.queue.add(key_of(after))
        else:
            self.controller.queue.add_after(model, self._backoff.wait(model, self._clock.monotonic()))

    async def reconcile(self, key: Key) -> float | None:
        """Process the pending events of the Model `key`; return the seconds until the next pass, or None."""
        model = ModelRef(key.namespace, key.name)
        for _ in range(RACES):
            waiting = self._pending.of(key)
            for obj, error in waiting.malformed:
                await self._fail(obj, EventStatus("Failed", error.reason, str(error)))
            if waiting.has_unseen_retry or not waiting.events:
                return None  # the informer enqueues this key when it shows the retry
            observed = await self._target.observe(model)
            routed = route(waiting.events, observed.newest)
            # First, because the Model only records its newest event: once the winner is applied, there is no other
            # record that these were applied before it.
            done = EventStatus("Applied", "Applied", "it is the Model's newest event")
            await self._statuses.write([(event.object, done) for event in routed.done])
            try:
                return await self._process(key, routed, observed)
            except Conflict as error:
                log.debug("%s: %s", key, error)
        raise TemporaryError(f"model {key} was changed by another client during each of {RACES} attempts")

    async def _process(self, key: Key, routed: Routed, model: ObservedModel) -> float | None:
        """Apply the winner if its wait is over, and write the statuses of older events."""
        winner = routed.winner
        wait: float | None = None
        if winner is not None:
            wait = self._backoff.wait(key, self._clock.monotonic())
            if winner.status.retry_at is not None and not wants_replay(winner.object):
                wait = max(wait, (winner.status.retry_at - self._clock.now()).total_seconds())
            if wait <= 0:
                wait = await self._apply(key, winner, routed.beaten, model)
            if wait is None and routed.undecided:
                wait = 0.0  # the next pass compares them with the winner, which is then the newest
        newest = f"{model.newest.id} of {model.newest.source}" if model.newest is not None else ""
        older = EventStatus("Superseded", "Older", f"it is older than {newest}, which was applied before it")
        self._statuses.enqueue((event.object, older) for event in routed.older)
        if routed.unorderable and model.newest is not None:
            first, *others = [(event, _NotOrderable(event, model.newest)) for event in routed.unorderable]
            await self._fail(first[0].object, EventStatus("Failed", first[1].reason, str(first[1])), others)
        return wait

    async def _apply(
        self, key: Key, winner: ModelEvent, beaten: Sequence[ModelEvent], model: ObservedModel
    ) -> float | None:
        """Apply the winner. Raises Conflict if the Model changed meanwhile; other errors go to the event's status."""
        try:
            applied = await self._target.apply(winner, await self._senders.authorize(winner), model)
        except Conflict:
            raise
        except KnodelError as error:
            return await self._record_failure(winner, beaten, model, error)
        self._backoff.record(key, self._clock.monotonic())
        log.info("event %s of %s: %s", winner.spec.id, winner.spec.source, applied.message)
        done = EventStatus("Applied", "Applied", applied.message, generation=applied.generation)
        older = EventStatus("Superseded", "Older", f"{winner.spec.id} of {winner.spec.source} is newer and was applied")
        self._statuses.enqueue((event.object, older) for event in beaten)
        await self._statuses.write([(winner.object, done)])
        return None

    async def _record_failure(
        self, event: ModelEvent, beaten: Sequence[ModelEvent], model: ObservedModel, error: KnodelError
    ) -> float | None:
        """Write the failed attempt to the event's status; return the seconds until the next pass."""
        attempts = 1 + (0 if wants_replay(event.object) else event.status.attempts)
        reason = error.reason if isinstance(error, ClusterError) else type(error).__name__
        wait = None if isinstance(error, PERMANENT) else wait_after(attempts)
        if wait is None:
            failed = EventStatus("Failed", reason, str(error), attempts)
            await self._fail(event.object, failed, await self._also_refused(event, beaten, model, error))
            return 0.0  # an event older than this one may be the newest now
        retry_at = self._clock.now() + timedelta(seconds=wait)
        await self._statuses.write([(event.object, EventStatus("Accepted", reason, str(error), attempts, retry_at))])
        return wait

    async def _also_refused(
        self, event: ModelEvent, beaten: Sequence[ModelEvent], model: ObservedModel, error: KnodelError
    ) -> list[Refused]:
        """Return the older events that fail for the same reason, because a pass for each of thousands is too slow."""
        if not isinstance(error, PERMANENT):
            return []
        refused = await self._senders.refused(beaten, model)
        if not isinstance(error, Invalid):
            return refused
        known = {one.key for one, _ in refused}
        same = [one for one in beaten if one.spec.change == event.spec.change and one.key not in known]
        return [*refused, *((one, error) for one in same)]

    async def _reconcile_without_model(self, key: Key) -> None:
        """Set the phase Ignored of an event that changes no Model."""
        obj = self._events.get(key.name, key.namespace)
        if obj is None or not is_pending(obj) or not self._statuses.unwritten([obj]):
            return
        try:
            message = read_model_event(obj).spec.ignored or "it changes no Model"
        except Invalid as error:
            await self._fail(obj, EventStatus("Failed", error.reason, str(error)))
            return
        self._statuses.enqueue([(obj, EventStatus("Ignored", "Ignored", message))])

    async def _fail(self, obj: Object, status: EventStatus, others: Sequence[Refused] = ()) -> None:
        """Set the phase Failed of the event and of `others`, with one Kubernetes Event for all of them.

        A failed event is a dead letter: users list it, and replay it after they have fixed its cause.
        """
        self._statuses.enqueue(
            (one.object, EventStatus("Failed", error.reason, str(error), one.status.attempts + 1))
            for one, error in others
        )
        await self._statuses.write([(obj, status)])
        message = f"{status.message} (and {len(others)} more events)" if others else status.message
        log.warning("event %s: %s", key_of(obj), message)
        await self._recorder.event(MODEL_EVENT, obj, "Warning", "EventFailed", message)
