"""One inference, whatever protocol asks for it: slot, queue, deadline, then the event loop or a thread.

Short inferences of models without loops run on the event loop: a hop to a thread costs more than they do. Whatever
turns out to be long runs in threads from then on. A protocol's own work (decode, encode) is part of its job, so that it
has a slot, a deadline and a thread as the model does.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from serving.engines.base import Cancellation
from serving.engines.errors import Cancelled, InputRefused
from serving.server.admission import Admission, fail
from serving.server.errors import BadRequest, ClientLeft, DeadlineExceeded, ModelFailed, QueueExpired, ServingError
from serving.server.lifecycle import Lifecycle, ServedModel
from serving.server.workers import Job, Workers

log = logging.getLogger(__name__)

INLINE_PACE: Final = 0.0005  # s of CPU; the hop to a thread and back takes a fifth of it
INLINE_BODY: Final = 16 * 1024  # bytes; larger inputs take longer than the warm-up told
INLINE_STRIKE: Final = 0.005  # s of CPU that an inference on the loop took: the model is not as fast as thought
MOST_STRIKES: Final = 3
PACE_SAMPLES: Final = 100  # small requests; the first ones do what happens only once

T = TypeVar("T")
ModelJob = Callable[[ServedModel, Cancellation | None], T]
"""What a protocol does with the model: decode, infer, encode. Blocks; may be called in any thread."""


class Left(Protocol):
    """A caller, who may leave before the answer."""

    def when_gone(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the caller leaves; None takes it back."""
        ...


class Inference:
    """Inferences of one model; no inference takes longer than `timeout` seconds, its waiting included."""

    def __init__(
        self, lifecycle: Lifecycle, admission: Admission, workers: Workers, timeout: float, loop: AbstractEventLoop
    ) -> None:
        self._lifecycle = lifecycle
        self._admission = admission
        self._workers = workers
        self._timeout = timeout
        self._loop = loop
        self._strikes = 0
        self._pace: float | None = None  # of a model that was not warmed up, from its first small requests
        self._to_measure = PACE_SAMPLES

    def model(self) -> ServedModel:
        """The model, to look at before anything is read. Raises NotReady."""
        return self._lifecycle.model()

    async def run(self, job: ModelJob[T], size: int, left: Left, timeout: float | None = None) -> T:
        """What `job` makes of the model, for a request of `size` bytes and within `timeout` seconds, if that is less.

        A task that is cancelled while it waits here is a caller that left. Raises ServingError; what else goes wrong in
        the job is logged under an id that the caller gets.
        """
        model = self._lifecycle.model()
        timeout = self._timeout if timeout is None else min(timeout, self._timeout)
        deadline = self._loop.time() + timeout
        if not self._admission.try_enter():
            await self._wait_for_slot(deadline, timeout, left)
        try:
            if self._is_short(model, size):
                return self._here(model, job)
            return await self._in_thread(self._job(model, job, size), deadline, timeout, left)
        finally:
            self._admission.leave()

    async def _wait_for_slot(self, deadline: float, timeout: float, left: Left) -> None:
        place = self._admission.join_queue()
        expired = QueueExpired(f"no slot was free within {timeout:g} s: try again")
        timer = self._loop.call_at(deadline, fail, place, expired)
        left.when_gone(partial(fail, place, ClientLeft()))
        try:
            await place
        except BaseException:
            self._admission.leave_queue(place)
            raise
        finally:
            timer.cancel()
            left.when_gone(None)

    def _is_short(self, model: ServedModel, size: int) -> bool:
        pace = self._pace if model.pace is None else model.pace
        return (
            pace is not None
            and pace < INLINE_PACE
            and size <= INLINE_BODY
            and self._strikes < MOST_STRIKES
            and model.engine.bounded
        )

    def _here(self, model: ServedModel, job: ModelJob[T]) -> T:
        start = time.thread_time()
        try:
            return attempt(model, job, None)
        finally:
            if time.thread_time() - start > INLINE_STRIKE:
                self._strikes += 1

    def _job(self, model: ServedModel, job: ModelJob[T], size: int) -> Job[T]:
        if model.pace is None and self._to_measure and size <= INLINE_BODY:
            return partial(self._measured, model, job)
        return partial(attempt, model, job)

    async def _in_thread(self, job: Job[T], deadline: float, timeout: float, left: Left) -> T:
        running = self._workers.submit(job)
        give_up = partial(self._workers.give_up, running)
        timer = self._loop.call_at(deadline, give_up, DeadlineExceeded(f"no answer within {timeout:g} s"))
        left.when_gone(partial(give_up, ClientLeft()))
        try:
            return await running.answer
        except CancelledError:
            self._workers.abandon(running)
            raise
        finally:
            timer.cancel()
            left.when_gone(None)

    def _measured(self, model: ServedModel, job: ModelJob[T], cancellation: Cancellation) -> T:
        start = time.thread_time()
        result = attempt(model, job, cancellation)
        self._pace = min(time.thread_time() - start, self._pace or math.inf)
        self._to_measure -= 1
        return result


def attempt(model: ServedModel, job: ModelJob[T], cancellation: Cancellation | None) -> T:
    """Do the job. Raises ServingError; what else goes wrong is logged under an id that the caller gets."""
    try:
        return job(model, cancellation)
    except ServingError:
        raise
    except Cancelled as error:
        raise ClientLeft from error
    except InputRefused as error:
        raise BadRequest(f"the model does not take this input ({_logged(model, error)})") from error
    except Exception as error:  # engines run code of others
        raise ModelFailed(f"the model failed on this input ({_logged(model, error)})") from error


def _logged(model: ServedModel, error: Exception) -> str:
    """Log the error and return the id to find it by."""
    number = secrets.token_hex(4)
    log.warning("model=%s error=%s %s: %s", model.name, number, type(error).__name__, " ".join(str(error).split()))
    return f"error {number}; its details are in the server's log"
