"""The controller of ModelEvents: what waits for a Model is reduced to its newest, which is applied.

One pass is about one Model, so its events have their effects one after the other. Nothing is remembered between passes
that a restart would miss: what was applied stands on the Model itself, written together with the change, and the tries
of an event that fails stand in its status.
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
from eventing.controller.pace import Pace
from eventing.controller.pending import PendingEvents
from eventing.controller.router import Routed, route
from eventing.controller.senders import Refused, Senders
from eventing.controller.target import Seen, Target
from eventing.objects.apis import ModelRef
from eventing.objects.model_event import ModelEvent, Status, is_pending, model_of, read_model_event, wants_replay
from eventing.objects.order import Mark
from eventing.objects.outgoing import is_outgoing
from eventing.objects.status import Statuses
from eventing.retries import wait_after

log = logging.getLogger(__name__)

COMPONENT = "knodel-eventing"
"""Who the Kubernetes Events about ModelEvents are from; give it to the Recorder."""
RACES = 5
"""How often a change that met another Model than it was made for is made anew within one pass."""
PERMANENT: Final = (NotFound, Invalid, Forbidden)
"""What no repetition helps."""


class _NotOrderable(ClusterError):
    """The sequences of an event and of the newest applied event allow no order."""

    reason = "NotOrderable"

    def __init__(self, event: ModelEvent, newest: Mark) -> None:
        super().__init__(
            f"sequence {event.spec.sequence!r} cannot be ordered against {newest.sequence!r} of event {newest.id}: "
            "numbers of different lengths need sequencetype Integer; send the event again with it, under another id"
        )


class EventController:
    """Applies ModelEvents to Models. Make it before `informers.run()`: it asks for the informers that it needs."""

    def __init__(
        self, cluster: Cluster, informers: Informers, *, target: Target, clock: Clock, recorder: Recorder
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._target = target
        self._clock = clock
        self._recorder = recorder
        self._pace = Pace()
        self._statuses = Statuses(cluster, clock)
        self._events = informers[MODEL_EVENT]
        self._senders = Senders(cluster, informers[EVENT_SOURCE], target)
        self.controller = Controller("event", self.reconcile)
        self.without_model = Controller("event without a model", self._settle_alone, workers=1)
        self._events.subscribe(self._statuses.observe)
        self._pending = PendingEvents(self._events, self._statuses)
        self._events.subscribe(self._wake)

    async def run(self) -> None:
        """Work until cancelled, once every informer holds its first list."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            group.create_task(self.without_model.run())
            group.create_task(self._statuses.run())

    def _wake(self, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None:
            self._wake(None, before)  # others may have waited for it
        if after is None or is_outgoing(after) or not is_pending(after):
            return
        model = model_of(after)
        if model is None:
            self.without_model.queue.add(key_of(after))
        else:
            self.controller.queue.add_after(model, self._pace.wait(model, self._clock.monotonic()))

    async def reconcile(self, key: Key) -> float | None:
        """One pass over the events that wait for the Model `key`; returns seconds until the next look, or None."""
        model = ModelRef(key.namespace, key.name)
        for _ in range(RACES):
            waiting = self._pending.of(key)
            for obj, error in waiting.nonsense:
                await self._fail(obj, Status("Failed", error.reason, str(error)))
            if waiting.is_ahead or not waiting.events:
                return None  # what the informer does not show yet wakes this key when it does
            seen = await self._target.look(model)
            routed = route(waiting.events, seen.newest)
            await self._settle_done(routed)
            try:
                return await self._go_on(key, routed, seen)
            except Conflict as error:
                log.debug("%s: %s", key, error)
        raise TemporaryError(f"model {key} is changed all the time by somebody else")

    async def _settle_done(self, routed: Routed) -> None:
        """First of all: once the winner is applied, nobody could tell any more that one was applied before it."""
        done = Status("Applied", "Applied", "it is the Model's newest event")
        await self._settle([(event.object, done) for event in routed.done])

    async def _go_on(self, key: Key, routed: Routed, seen: Seen) -> float | None:
        """Apply the winner if it may be tried now, and settle what came too late."""
        winner, wait = routed.winner, None
        if winner is not None:
            wait = self._wait(key, winner)
            if wait <= 0:
                wait = await self._apply(key, winner, routed.beaten, seen)
            if wait is None and routed.undecided:
                wait = 0.0  # the next pass compares them with the winner, which is the newest now
        newest = f"{seen.newest.id} of {seen.newest.source}" if seen.newest is not None else ""
        older = Status("Superseded", "Older", f"it is older than {newest}, which was applied before it")
        self._statuses.leave((event.object, older) for event in routed.older)
        await self._refuse_unorderable(routed.unorderable, seen)
        return wait

    async def _refuse_unorderable(self, events: Sequence[ModelEvent], seen: Seen) -> None:
        if not events or seen.newest is None:
            return
        first, *others = [(event, _NotOrderable(event, seen.newest)) for event in events]
        await self._fail(first[0].object, Status("Failed", first[1].reason, str(first[1])), others)

    def _wait(self, key: Key, winner: ModelEvent) -> float:
        """Seconds until the winner may be tried."""
        pace = self._pace.wait(key, self._clock.monotonic())
        if winner.status.retry_at is None or wants_replay(winner.object):
            return pace
        return max(pace, (winner.status.retry_at - self._clock.now()).total_seconds())

    async def _apply(self, key: Key, winner: ModelEvent, beaten: Sequence[ModelEvent], seen: Seen) -> float | None:
        """Raises Conflict when the Model changed meanwhile; tells all else in the event's status."""
        try:
            applied = await self._target.apply(winner, await self._senders.of(winner), seen)
        except Conflict:
            raise
        except KnodelError as error:
            return await self._failed(winner, beaten, seen, error)
        self._pace.changed(key, self._clock.monotonic())
        log.info("event %s of %s: %s", winner.spec.id, winner.spec.source, applied.message)
        done = Status("Applied", "Applied", applied.message, generation=applied.generation)
        older = Status("Superseded", "Older", f"{winner.spec.id} of {winner.spec.source} is newer and was applied")
        self._statuses.leave((event.object, older) for event in beaten)
        await self._settle([(winner.object, done)])
        return None

    async def _failed(
        self, event: ModelEvent, beaten: Sequence[ModelEvent], seen: Seen, error: KnodelError
    ) -> float | None:
        """Note the failure; returns seconds until the next try, or None when there is none."""
        attempts = 1 + (0 if wants_replay(event.object) else event.status.attempts)
        reason = error.reason if isinstance(error, ClusterError) else type(error).__name__
        wait = None if isinstance(error, PERMANENT) else wait_after(attempts)
        if wait is None:
            failed = Status("Failed", reason, str(error), attempts)
            await self._fail(event.object, failed, await self._refused_too(event, beaten, seen, error))
            return 0.0  # one that it had beaten may be the newest now
        retry_at = self._clock.now() + timedelta(seconds=wait)
        await self._settle([(event.object, Status("Accepted", reason, str(error), attempts, retry_at))])
        return wait

    async def _refused_too(
        self, event: ModelEvent, beaten: Sequence[ModelEvent], seen: Seen, error: KnodelError
    ) -> list[Refused]:
        """The others that fail with it: of thousands each would be a pass of its own over all of them."""
        if not isinstance(error, PERMANENT):
            return []
        refused = await self._senders.refused(beaten, seen)
        if not isinstance(error, Invalid):
            return refused
        known = {one.key for one, _ in refused}
        same = [one for one in beaten if one.spec.change == event.spec.change and one.key not in known]
        return [*refused, *((one, error) for one in same)]

    async def _settle_alone(self, key: Key) -> None:
        """An event that changes no Model."""
        obj = self._events.get(key.name, key.namespace)
        if obj is None or not is_pending(obj) or not self._statuses.unsettled([obj]):
            return
        try:
            words = read_model_event(obj).spec.ignored or "it changes no Model"
        except Invalid as error:
            await self._fail(obj, Status("Failed", error.reason, str(error)))
            return
        self._statuses.leave([(obj, Status("Ignored", "Ignored", words))])

    async def _fail(self, obj: Object, status: Status, others: Sequence[Refused] = ()) -> None:
        """A dead letter: people list it, and replay it when its cause is mended. They are told once of `others`."""
        self._statuses.leave(
            (one.object, Status("Failed", error.reason, str(error), one.status.attempts + 1)) for one, error in others
        )
        await self._settle([(obj, status)])
        words = f"{status.message} (and {len(others)} more events)" if others else status.message
        log.warning("event %s: %s", key_of(obj), words)
        await self._recorder.event(MODEL_EVENT, obj, "Warning", "EventFailed", words)

    async def _settle(self, outcomes: Sequence[tuple[Object, Status]]) -> None:
        await self._statuses.settle(outcomes)
