"""The frame around every reconciler: informers wake keys, workers reconcile them, failures are retried with back-off.

A reconcile pass is level-triggered and idempotent. It answers in two words at most: None (all is well), or the seconds
after which it wants to look again. It raises `TemporaryError` for "later", `PermanentError` for "not before the object
changes"; `Conflict`, `AlreadyExists`, `NotFound` and `Unavailable` of the cluster count as "later".
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
"""One pass over one key; returns seconds until the next look, or None."""

Patience = Callable[[Object, Object], float]
"""Seconds that a change (before, after) may wait for others to come, so that they make one pass."""


class Controller:
    """Workers over a queue of keys; `passes`, `failed` and `busy_seconds` count since the start."""

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int = 4) -> None:
        self.name = name
        self.queue: WorkQueue[Key] = WorkQueue()
        self._reconcile = reconcile
        self._workers = workers
        self.passes = 0
        self.failed = 0
        self.busy_seconds = 0.0

    def watches(self, informer: Informer) -> None:
        """Wake the object's own key at each of its changes."""
        informer.subscribe(lambda before, after: self.queue.add(key_of(_either(before, after))))

    def watches_owned(self, informer: Informer, owner: Kind, patience: Patience | None = None) -> None:
        """Wake the controlling owner (when of kind `owner`) at each change of a child; else as `watches_mapped`."""

        def owners(obj: Object) -> list[Key]:
            reference = controller_of(obj)
            return [Key(namespace_of(obj), reference["name"])] if reference and reference["kind"] == owner.kind else []

        self.watches_mapped(informer, owners, patience)

    def watches_mapped(
        self, informer: Informer, keys: Callable[[Object], list[Key]], patience: Patience | None = None
    ) -> None:
        """Wake `keys(object)` at each change; one that changed after `patience`, so that many changes make one pass."""

        def wake(before: Object | None, after: Object | None) -> None:
            delay = 0.0
            if patience is not None and before is not None and after is not None:
                delay = _delay(patience, before, after)
            for obj in (before, after):
                for key in keys(obj) if obj is not None else ():
                    self.queue.add_after(key, delay)

        informer.subscribe(wake)

    async def run(self) -> None:
        """Work until cancelled."""
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
        except Exception as error:  # the frame: one poison object must not stop the others
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
            await asyncio.sleep(0)  # a queue that holds keys suspends nobody, nor must a pass: let others run

    async def _reconciled(self, key: Key) -> float | None:
        """The pass's answer. One that is cancelled by what it waits for failed: the worker would end without a word."""
        try:
            return await self._reconcile(key)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("what the pass waited for was cancelled") from exc

    def _failed(self, key: Key, error: Exception) -> None:
        permanent = isinstance(error, PermanentError | Invalid)
        # Also when permanent: what refused it may change (a quota, a flag), the back-off is capped.
        self.queue.retry(key, _asked_for(error))
        expected = isinstance(error, TemporaryError | ClusterError) and not permanent
        if not expected or self.queue.failures(key) > 5:
            log.warning("%s: %s: %s", self.name, key, error, exc_info=not (expected or permanent))


def _delay(patience: Patience, before: Object, after: Object) -> float:
    """None for a change that patience cannot bear: the pass is to say what is wrong with the object."""
    try:
        return patience(before, after)
    except Exception:
        log.exception("how long a change may wait cannot be told, by a fault of ours: it does not")
        return 0.0


def _asked_for(error: Exception) -> float | None:
    """Seconds that the pass, or the cluster by its Retry-After, wants the next try to wait."""
    if isinstance(error, TemporaryError):
        return error.delay
    return error.retry_after if isinstance(error, Unavailable) else None


def _either(before: Object | None, after: Object | None) -> Object:
    obj = after if after is not None else before
    if obj is None:
        raise TypeError("an informer reported neither a state before nor one after")
    return obj
