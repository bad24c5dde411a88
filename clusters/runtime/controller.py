"""A controller: informers enqueue keys, workers reconcile them, and failures are retried with back-off.

A reconcile pass is level-triggered and idempotent. It returns None, or the seconds until the next pass. It raises
`TemporaryError` to be retried, and `PermanentError` when only a change of the object can help. `Conflict`,
`AlreadyExists`, `NotFound` and `Unavailable` of the cluster count as temporary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from clusters.base.errors import ClusterError, Invalid, PermanentError, TemporaryError, Unavailable
from clusters.base.objects import Key, Kind, Object, controller_of, key_of, namespace_of
from clusters.runtime.informer import Informer
from clusters.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Reconcile one key; return the seconds until the next pass, or None."""

Debounce = Callable[[Object, Object], float]
"""Return the seconds that a change (before, after) may wait for further changes, so that one pass handles them all."""


class Controller:
    """Workers that reconcile the keys of a queue. `passes`, `failed` and `busy_seconds` count since the start.

    Example:
        controller = Controller("models", reconcile)
        controller.watches(informers[MODEL])
        await controller.run()
    """

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int = 4) -> None:
        self.name = name
        self.queue: WorkQueue[Key] = WorkQueue()
        self._reconcile = reconcile
        self._workers = workers
        self.passes = 0
        self.failed = 0
        self.busy_seconds = 0.0

    def watches(self, informer: Informer) -> None:
        """Enqueue the key of each changed object."""
        informer.subscribe(lambda before, after: self.queue.add(key_of(_either(before, after))))

    def watches_owned(self, informer: Informer, owner: Kind, debounce: Debounce | None = None) -> None:
        """Enqueue the controlling owner, if it is of kind `owner`, at each change of a child; see `watches_mapped`."""

        def owners(obj: Object) -> list[Key]:
            reference = controller_of(obj)
            return [Key(namespace_of(obj), reference["name"])] if reference and reference["kind"] == owner.kind else []

        self.watches_mapped(informer, owners, debounce)

    def watches_mapped(
        self, informer: Informer, keys: Callable[[Object], list[Key]], debounce: Debounce | None = None
    ) -> None:
        """Enqueue `keys(object)` at each change.

        After an update they wait for `debounce(before, after)` seconds, so that one pass handles many updates.
        """

        def enqueue(before: Object | None, after: Object | None) -> None:
            delay = 0.0
            if debounce is not None and before is not None and after is not None:
                delay = _delay(debounce, before, after)
            for obj in (before, after):
                for key in keys(obj) if obj is not None else ():
                    self.queue.add_after(key, delay)

        informer.subscribe(enqueue)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name} {number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._pass(key)
            finally:
                self.queue.done(key)

    async def _pass(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            again = await self._reconciled(key)
        except Exception as error:  # one faulty object must not stop the others
            self.failed += 1
            self._failed(key, error)
            return
        finally:
            self.passes += 1
            self.busy_seconds += loop.time() - began
        self.queue.forget(key)
        if again is None:
            return
        self.queue.add_after(key, again)
        if again <= 0:
            await asyncio.sleep(0)  # neither a filled queue nor a pass has to suspend: let other tasks run

    async def _reconciled(self, key: Key) -> float | None:
        """Run one pass. Raises RuntimeError when something that it awaits was cancelled, which would end the worker."""
        try:
            return await self._reconcile(key)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("something that the pass awaited was cancelled") from exc

    def _failed(self, key: Key, error: Exception) -> None:
        permanent = isinstance(error, PermanentError | Invalid)
        # Permanent errors are retried too: a quota or a flag may change, and the back-off is bounded.
        self.queue.retry(key, _requested_delay(error))
        expected = isinstance(error, TemporaryError | ClusterError) and not permanent
        if not expected or self.queue.failures(key) > 5:
            log.warning("%s: %s: %s", self.name, key, error, exc_info=not (expected or permanent))


def _delay(debounce: Debounce, before: Object, after: Object) -> float:
    """Return the delay of a change, 0 where it cannot be computed: the pass reports the fault of the object."""
    try:
        return debounce(before, after)
    except Exception:
        log.exception("internal error: the delay of a change cannot be computed, so it is handled at once")
        return 0.0


def _requested_delay(error: Exception) -> float | None:
    """Return the seconds until the retry that the pass, or the cluster by Retry-After, requests; else None."""
    if isinstance(error, TemporaryError):
        return error.delay
    return error.retry_after if isinstance(error, Unavailable) else None


def _either(before: Object | None, after: Object | None) -> Object:
    obj = after if after is not None else before
    if obj is None:
        raise TypeError("an informer reported neither a state before nor one after")
    return obj
