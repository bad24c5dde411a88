"""Run one inference, of any protocol: acquire a slot, enforce the deadline, use the event loop or a thread.

Short inferences of models without loops run on the event loop, because a switch to a thread costs more than they do.
An inference that turns out to be long runs in a thread from then on. The protocol's own steps (prepare, respond) are
part of the job, so that they have the same slot, deadline and thread. With a batcher, these steps run separately and
requests share the inference between them.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from asyncio import AbstractEventLoop, CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from clusters.base.redact import one_line
from serving.engines.base.datatypes import BYTES, Tensor, datatype_of
from serving.engines.base.device import is_device_lost
from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InputRefused
from serving.modelserver.base.errors import (
    ClientLeft,
    DeadlineExceeded,
    DeviceLost,
    InvalidRequest,
    ModelFailed,
    QueueExpired,
    ServingError,
    release_frames,
)
from serving.modelserver.base.limits import NO_LEASE, Lease
from serving.modelserver.base.logs import traceback_of
from serving.modelserver.base.split import CURRENT
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution.lifecycle import DEVICE_LOST, ModelLifecycle, ServedModel
from serving.modelserver.execution.slot_queue import SlotQueue, fail_future
from serving.modelserver.execution.workers import Job, Workers

if TYPE_CHECKING:
    from serving.modelserver.execution.batcher import Batcher

log = logging.getLogger(__name__)

INLINE_PACE: Final = 0.0005  # s of CPU; the switch to a thread and back takes a fifth of it
BATCHED_PACE: Final = 0.0001  # s of CPU; with a batcher, a faster inference costs less alone than its share of a batch
INLINE_BODY: Final = 16 * 1024  # bytes; larger inputs take longer than the warm-up measured
INLINE_STRIKE: Final = 0.005  # s of CPU on the event loop after which an inference counts as too slow for it
MAX_STRIKES: Final = 3
MAX_LOGGED: Final = 1000  # characters of an engine's error in the log
PACE_SAMPLES: Final = 100  # small requests; the first ones include work that happens only once

BEGAN: Final = "knodel.began"
"""Key of an ASGI scope: when (the loop's time) a request arrived that had to wait for the model to load."""

T = TypeVar("T")
ModelJob = Callable[[ServedModel, Cancellation | None], T]
"""All steps of a request: prepare, infer, respond. Blocks; may be called in any thread."""
Respond = Callable[[PreparedRequest, Sequence[Tensor]], T]
"""Encode the outputs of a call in the request's protocol. Blocks; may be called in any thread."""
Prepare = Callable[[ServedModel], tuple[PreparedRequest, Respond[T]]]
"""Decode a request; return the call and the function that encodes its response. Blocks; may be called in any thread."""


class RequestClient(Protocol):
    """The client of a request, which may disconnect before the response."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the client disconnects; None removes the callback."""
        ...


class RequestContext(msgspec.Struct, frozen=True):
    """The deadline and the client of a request.

    `deadline` is by the loop's time, `timeout` is the request's total time in seconds. `body` is the memory of the
    request's body, which threads may still use after the client has disconnected. `on_batch` is called with the number
    of requests of its batch when the batch starts.
    """

    deadline: float
    timeout: float
    client: RequestClient
    body: Lease = NO_LEASE
    on_batch: Callable[[int], None] | None = None


class Inference:
    """Runs the inferences of one model. None takes longer than `timeout` seconds, queueing included.

    With a `batcher`, requests to `infer` may share the work of the model.
    """

    def __init__(
        self, lifecycle: ModelLifecycle, slots: SlotQueue, workers: Workers, timeout: float, loop: AbstractEventLoop,
        batcher: Batcher | None = None,
    ) -> None:  # fmt: skip
        self._lifecycle = lifecycle
        self._slots = slots
        self._workers = workers
        self._timeout = timeout
        self._loop = loop
        self._batcher = batcher
        self._inline_pace = INLINE_PACE if batcher is None else BATCHED_PACE
        self._strikes = 0
        self._pace: float | None = None  # of a model that was not warmed up, measured on its first small requests
        self._to_measure = PACE_SAMPLES
        self._uncounted = 0  # requests in slots and queue that the rollout's judge does not count (`split`)

    def start_batching(self, batcher: Batcher, slots: int) -> None:
        """Batch requests from now on, of which at most `slots` are in the model; call it before the model is served."""
        self._batcher, self._inline_pace = batcher, BATCHED_PACE
        self._slots.raise_to(slots)

    def set_slots(self, slots: int) -> None:
        """Have this many slots, as the engine says; call it before the model is served."""
        self._slots.resize(slots)

    @asynccontextmanager
    async def occupy(
        self, client: RequestClient, began: float | None = None, slots: int = 1
    ) -> AsyncIterator[RequestContext]:
        """Hold `slots` for a request that is computed in another process, and yield its deadline.

        `began` is as in `run`. Raises NotReady, Overloaded, QueueExpired, ClientLeft.
        """
        self._lifecycle.model()
        request = self._context(client, None, began, NO_LEASE)
        if not self._slots.try_acquire(slots):
            await self._wait_for_slot(request, slots)
        release = self._slot_releaser(slots)
        try:
            yield request
        finally:
            release()

    def model(self) -> ServedModel:
        """Return the model, for checks before a body is read. Raises NotReady."""
        return self._lifecycle.model()

    def infer(
        self, prepare: Prepare[T], size: int, client: RequestClient, timeout: float | None = None,
        began: float | None = None, body: Lease = NO_LEASE,
    ) -> Awaitable[T]:  # fmt: skip
        """Return the response to a request, by the same rules as `run`; its inference may be batched."""
        batcher = self._batcher
        if batcher is not None:
            model = self._lifecycle.model()
            if not self._is_short(model, size) and batcher.can_batch(model):
                return self.run_batched(batcher, model, prepare, size, self._context(client, timeout, began, body))
        return self.run(partial(infer_unbatched, prepare), size, client, timeout, began, body)

    async def run(
        self, job: ModelJob[T], size: int, client: RequestClient, timeout: float | None = None,
        began: float | None = None, body: Lease = NO_LEASE,
    ) -> T:  # fmt: skip
        """Return the result of `job`, for a request of `size` bytes.

        `timeout` (seconds) applies if it is shorter than the model's. `began` is when (the loop's time) the time of a
        request began that waited for the model to load. `body` is in use as long as a thread has the job. Cancelling
        the task means that the client has disconnected. Raises ServingError; any other error of the job is logged
        under an id that the client receives.
        """
        model = self._lifecycle.model()
        try:
            if self._is_short(model, size) and self._slots.try_acquire():
                return self._run_inline(model, job)
            request = self._context(client, timeout, began, body)
            if not self._slots.try_acquire():
                await self._wait_for_slot(request)
            if self._is_short(model, size):
                return self._run_inline(model, job)
            if model.pace is None and self._to_measure and size <= INLINE_BODY:
                threaded: Job[T] = partial(self._run_measured, model, job)
            else:
                threaded = partial(run_job, model, job)
            return await self._run_in_thread(threaded, request, self._slot_releaser())
        except ServingError as error:
            self._clean_up(error)
            raise

    async def run_batched(
        self, batcher: Batcher, model: ServedModel, prepare: Prepare[T], size: int, request: RequestContext
    ) -> T:
        """Prepare, infer and respond as three steps, the second of which is shared by a batch."""
        if not self._slots.try_acquire():
            await self._wait_for_slot(request)
        slot = Lease(self._slot_releaser())
        try:
            call, respond, rows = await self._run_step(model, partial(batcher.prepare, prepare), size, request, slot)
            outputs = await batcher.infer(model, call, rows, request)
            return await self._run_step(model, lambda *_: respond(call, outputs), _output_size(outputs), request, slot)
        except ServingError as error:
            self._clean_up(error)
            raise
        finally:
            slot.release()

    def _clean_up(self, error: ServingError) -> None:
        """Drop the frames of an error that was logged, and mark the server as failed if the accelerator is lost."""
        release_frames(error)
        if isinstance(error, DeviceLost):
            self._lifecycle.mark_device_lost()

    async def _run_step(
        self, model: ServedModel, job: ModelJob[T], size: int, request: RequestContext, slot: Lease
    ) -> T:
        """Run the step of a protocol on `size` bytes, inline or in a thread, which uses the slot meanwhile."""
        if size <= INLINE_BODY:
            return run_job(model, job, None)
        slot.retain()
        return await self._run_in_thread(partial(run_job, model, job), request, slot.release)

    def _context(
        self, client: RequestClient, timeout: float | None, began: float | None, body: Lease
    ) -> RequestContext:
        now = self._loop.time()
        deadline = (now if began is None else began) + self._timeout
        if timeout is None:
            return RequestContext(deadline, self._timeout, client, body)
        return RequestContext(min(deadline, now + timeout), min(timeout, self._timeout), client, body)

    async def _wait_for_slot(self, request: RequestContext, slots: int = 1) -> None:
        place = self._slots.enqueue(slots)
        judged = CURRENT.get()
        if judged is None:
            self._uncounted += 1
        else:
            judged.waits_for_others = self._uncounted > 0  # the queue is first come, first served
        expired = QueueExpired(f"no slot was free within {request.timeout:g} s: try again")
        timer = self._loop.call_at(request.deadline, fail_future, place, expired)
        request.client.on_disconnect(partial(fail_future, place, ClientLeft()))
        try:
            await place
        except BaseException:
            self._slots.abandon(place, slots)
            raise
        else:
            if judged is not None and judged.waits_for_others:
                judged.waits_for_others, judged.slot_at = False, self._loop.time()
        finally:
            timer.cancel()
            request.client.on_disconnect(None)
            if judged is None:
                self._uncounted -= 1

    def _slot_releaser(self, slots: int = 1) -> Callable[[], None]:
        """Return the function that releases the slots of the current request."""
        if CURRENT.get() is not None:
            return partial(self._slots.release, slots)
        self._uncounted += 1

        def release() -> None:
            self._uncounted -= 1
            self._slots.release(slots)

        return release

    def _is_short(self, model: ServedModel, size: int) -> bool:
        pace = self._pace if model.pace is None else model.pace
        return (
            pace is not None
            and pace < self._inline_pace
            and size <= INLINE_BODY
            and self._strikes < MAX_STRIKES
            and model.engine.bounded
        )

    def _run_inline(self, model: ServedModel, job: ModelJob[T]) -> T:
        """Run the job on the event loop and release the slot."""
        start = time.thread_time()
        try:
            return run_job(model, job, None)
        finally:
            self._slots.release()
            if time.thread_time() - start > INLINE_STRIKE:
                self._strikes += 1

    async def _run_in_thread(self, job: Job[T], request: RequestContext, on_release: Callable[[], object]) -> T:
        """Run the job in a worker thread.

        `on_release` is called once: when the job has ended, hangs, or will not start. The client may be gone by then.
        """
        try:
            running = self._workers.submit(job, on_release, request.body)
        except ServingError:
            on_release()
            raise
        cancel = partial(self._workers.cancel, running)
        late = DeadlineExceeded(f"no answer within {request.timeout:g} s")
        timer = self._loop.call_at(request.deadline, cancel, late)
        request.client.on_disconnect(partial(cancel, ClientLeft()))
        try:
            return await running.result
        except CancelledError:
            self._workers.cancel_if_abandoned(running)
            raise
        finally:
            timer.cancel()
            request.client.on_disconnect(None)

    def _run_measured(self, model: ServedModel, job: ModelJob[T], cancellation: Cancellation) -> T:
        start = time.thread_time()
        result = run_job(model, job, cancellation)
        self._pace = min(time.thread_time() - start, self._pace or math.inf)
        self._to_measure -= 1
        return result


def infer_unbatched(prepare: Prepare[T], model: ServedModel, cancellation: Cancellation | None) -> T:
    """Prepare, infer and respond in one go. Raises ServingError, EngineError, and any error of the model's code."""
    call, respond = prepare(model)
    return respond(call, model.engine.infer(call.inputs, call.outputs, cancellation))


def run_job(model: ServedModel, job: ModelJob[T], cancellation: Cancellation | None) -> T:
    """Run the job. Raises ServingError; any other error is logged under an id, which the raised error contains.

    For an error of the model, the log has the traceback with lines of the model's code; the response never has.
    """
    try:
        return job(model, cancellation)
    except ServingError:
        raise
    except Cancelled as error:
        raise ClientLeft from error
    except InputRefused as error:
        raise InvalidRequest(f"the model does not accept this input ({_log_error(model, error)})") from error
    except Exception as error:  # engines run third-party code
        if is_device_lost(error):
            raise DeviceLost(f"{DEVICE_LOST} ({_log_error(model, error)})") from error
        raise ModelFailed(f"the model failed on this input ({_log_error(model, error, traced=True)})") from error


def _output_size(outputs: Sequence[Tensor]) -> int:
    """Return the approximate size in bytes. NumPy only references texts, so those of small outputs are measured."""
    size = sum(int(tensor.nbytes) for tensor in outputs)
    if size > INLINE_BODY:
        return size
    texts = (tensor.flat for tensor in outputs if datatype_of(tensor).name == BYTES)
    return size + sum(map(len, chain.from_iterable(texts)))


def _log_error(model: ServedModel, error: Exception, *, traced: bool = False) -> str:
    """Log the error, with its traceback if `traced`, and return the reference to it for the client."""
    number = secrets.token_hex(4)
    words = one_line(str(error), MAX_LOGGED)  # logged by repr: it may quote a client's escape sequences
    details = f"\n{traceback_of(error)}" if traced else ""
    log.warning("model=%s error=%s %s: %r%s", model.name, number, type(error).__name__, words, details)
    return f"error {number}; its details are in the server's log"
