"""One inference, whatever protocol asks for it: slot, queue, deadline, then the event loop or a thread.

Short inferences of models without loops run on the event loop: a hop to a thread costs more than they do. Whatever
turns out to be long runs in threads from then on. A protocol's own work (decode, encode) is part of its job, so that it
has a slot, a deadline and a thread as the model does. With a batcher, decoding and encoding are steps of their own and
the model's work is shared.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from clusters.base.redact import one_line
from serving.engines.base.datatypes import BYTES, Tensor, datatype_of
from serving.engines.base.device import is_lost
from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InputRefused
from serving.modelserver.base.errors import (
    BadRequest,
    ClientLeft,
    DeadlineExceeded,
    DeviceLost,
    ModelFailed,
    QueueExpired,
    ServingError,
    release_frames,
)
from serving.modelserver.base.limits import NO_LEASE, Lease
from serving.modelserver.base.logs import traceback_of
from serving.modelserver.base.split import CURRENT
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution.admission import Admission, fail
from serving.modelserver.execution.lifecycle import DEVICE_LOST, Lifecycle, ServedModel
from serving.modelserver.execution.workers import Job, Workers

if TYPE_CHECKING:
    from serving.modelserver.execution.batcher import Batcher

log = logging.getLogger(__name__)

INLINE_PACE: Final = 0.0005  # s of CPU; the hop to a thread and back takes a fifth of it
BATCHED_PACE: Final = 0.0001  # s of CPU; with a batcher, what takes less costs less than a batch that it shares
INLINE_BODY: Final = 16 * 1024  # bytes; larger inputs take longer than the warm-up told
INLINE_STRIKE: Final = 0.005  # s of CPU that an inference on the loop took: the model is not as fast as thought
MOST_STRIKES: Final = 3
LONGEST_WORDS: Final = 1000  # characters of an engine's error that are logged
PACE_SAMPLES: Final = 100  # small requests; the first ones do what happens only once

BEGAN: Final = "knodel.began"
"""Key of an ASGI scope: when (the loop's time) a request that had to wait for its model came."""

T = TypeVar("T")
ModelJob = Callable[[ServedModel, Cancellation | None], T]
"""What a protocol does with the model: decode, infer, encode. Blocks; may be called in any thread."""
Encode = Callable[[PreparedRequest, Sequence[Tensor]], T]
"""How a protocol tells the model's answer to a call. Blocks; may be called in any thread."""
Ask = Callable[[ServedModel], tuple[PreparedRequest, Encode[T]]]
"""What a protocol makes of a request: what the model is asked, and how its answer is told. Blocks, as above."""


class Left(Protocol):
    """A caller, who may leave before the answer."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the caller leaves; None takes it back."""
        ...


class Patience(msgspec.Struct, frozen=True):
    """How long a caller waits: to `deadline` (the loop's time), which ends its `timeout` seconds, if it stays.

    `body` is what it has sent, which threads may work on when it waits no more.
    """

    deadline: float
    timeout: float
    left: Left
    body: Lease = NO_LEASE


class Inference:
    """Inferences of one model; no inference takes longer than `timeout` seconds, its waiting included.

    With a `batcher`, those that `infer` is asked for share the model's work.
    """

    def __init__(
        self, lifecycle: Lifecycle, admission: Admission, workers: Workers, timeout: float, loop: AbstractEventLoop,
        batcher: Batcher | None = None,
    ) -> None:  # fmt: skip
        self._lifecycle = lifecycle
        self._admission = admission
        self._workers = workers
        self._timeout = timeout
        self._loop = loop
        self._batcher = batcher
        self._inline_pace = INLINE_PACE if batcher is None else BATCHED_PACE
        self._strikes = 0
        self._pace: float | None = None  # of a model that was not warmed up, from its first small requests
        self._to_measure = PACE_SAMPLES
        self._uncounted = 0  # requests in slots and in the queue that no judge counts (`split`)

    def model(self) -> ServedModel:
        """The model, to look at before anything is read. Raises NotReady."""
        return self._lifecycle.model()

    def infer(
        self, ask: Ask[T], size: int, left: Left, timeout: float | None = None, began: float | None = None,
        body: Lease = NO_LEASE,
    ) -> Awaitable[T]:  # fmt: skip
        """The answer to a request, as `run` and by the same rules; its inference may be shared."""
        batcher = self._batcher
        if batcher is not None:
            model = self._lifecycle.model()
            if not self._is_short(model, size) and batcher.works_for(model):
                return self.share(batcher, model, ask, size, self._patience(left, timeout, began, body))
        return self.run(partial(answer, ask), size, left, timeout, began, body)

    async def run(
        self, job: ModelJob[T], size: int, left: Left, timeout: float | None = None, began: float | None = None,
        body: Lease = NO_LEASE,
    ) -> T:  # fmt: skip
        """What `job` makes of the model, for a request of `size` bytes and within `timeout` seconds, if that is less.

        `began` is when (the loop's time) the time of a request that waited for its model began; `body` is used for as
        long as a thread has the job. A task that is cancelled while it waits here is a caller that left. Raises
        ServingError; what else goes wrong in the job is logged under an id that the caller gets.
        """
        model = self._lifecycle.model()
        try:
            if self._is_short(model, size) and self._admission.try_enter():
                return self._here(model, job)
            patience = self._patience(left, timeout, began, body)
            if not self._admission.try_enter():
                await self._wait_for_slot(patience)
            if self._is_short(model, size):
                return self._here(model, job)
            return await self._in_thread(self._job(model, job, size), patience, self._slot_leaver())
        except ServingError as error:
            self._end_with(error)
            raise

    async def share(self, batcher: Batcher, model: ServedModel, ask: Ask[T], size: int, patience: Patience) -> T:
        """`infer` in three steps, the second of which is a batch's."""
        if not self._admission.try_enter():
            await self._wait_for_slot(patience)
        slot = Lease(self._slot_leaver())
        try:
            call, encode, rows = await self._step(model, partial(batcher.asked, ask), size, patience, slot)
            answers = await batcher.infer(model, call, rows, patience)
            return await self._step(model, lambda *_: encode(call, answers), _size_of(answers), patience, slot)
        except ServingError as error:
            self._end_with(error)
            raise
        finally:
            slot.release()

    def _end_with(self, error: ServingError) -> None:
        """Forget where the error comes from, which was logged; the server needs a restart if the device is lost."""
        release_frames(error)
        if isinstance(error, DeviceLost):
            self._lifecycle.lose_device()

    async def _step(self, model: ServedModel, job: ModelJob[T], size: int, patience: Patience, slot: Lease) -> T:
        """A protocol's work for `size` bytes, here or in a thread, which uses the slot as long as it works."""
        if size <= INLINE_BODY:
            return attempt(model, job, None)
        slot.retain()
        return await self._in_thread(partial(attempt, model, job), patience, slot.release)

    def _patience(self, left: Left, timeout: float | None, began: float | None, body: Lease) -> Patience:
        now = self._loop.time()
        deadline = (now if began is None else began) + self._timeout
        if timeout is None:
            return Patience(deadline, self._timeout, left, body)
        return Patience(min(deadline, now + timeout), min(timeout, self._timeout), left, body)

    async def _wait_for_slot(self, patience: Patience) -> None:
        place = self._admission.join_queue()
        judged = CURRENT.get()
        if judged is None:
            self._uncounted += 1
        else:
            judged.waits_for_others = self._uncounted > 0  # the queue is first come, first served
        expired = QueueExpired(f"no slot was free within {patience.timeout:g} s: try again")
        timer = self._loop.call_at(patience.deadline, fail, place, expired)
        patience.left.on_disconnect(partial(fail, place, ClientLeft()))
        try:
            await place
        except BaseException:
            self._admission.leave_queue(place)
            raise
        else:
            if judged is not None and judged.waits_for_others:
                judged.waits_for_others, judged.slot_at = False, self._loop.time()
        finally:
            timer.cancel()
            patience.left.on_disconnect(None)
            if judged is None:
                self._uncounted -= 1

    def _slot_leaver(self) -> Callable[[], None]:
        """Return what gives back the slot that the present request has."""
        if CURRENT.get() is not None:
            return self._admission.leave
        self._uncounted += 1
        return self._leave_uncounted

    def _leave_uncounted(self) -> None:
        self._uncounted -= 1
        self._admission.leave()

    def _is_short(self, model: ServedModel, size: int) -> bool:
        pace = self._pace if model.pace is None else model.pace
        return (
            pace is not None
            and pace < self._inline_pace
            and size <= INLINE_BODY
            and self._strikes < MOST_STRIKES
            and model.engine.bounded
        )

    def _here(self, model: ServedModel, job: ModelJob[T]) -> T:
        """On the event loop; the slot is left."""
        start = time.thread_time()
        try:
            return attempt(model, job, None)
        finally:
            self._admission.leave()
            if time.thread_time() - start > INLINE_STRIKE:
                self._strikes += 1

    def _job(self, model: ServedModel, job: ModelJob[T], size: int) -> Job[T]:
        if model.pace is None and self._to_measure and size <= INLINE_BODY:
            return partial(self._measured, model, job)
        return partial(attempt, model, job)

    async def _in_thread(self, job: Job[T], patience: Patience, on_end: Callable[[], object] | None = None) -> T:
        """`on_end` is called once, when the thread has done the job, or will not, or hangs; the caller may be gone."""
        try:
            running = self._workers.submit(job, on_end, patience.body)
        except ServingError:
            if on_end is not None:
                on_end()
            raise
        give_up = partial(self._workers.give_up, running)
        late = DeadlineExceeded(f"no answer within {patience.timeout:g} s")
        timer = self._loop.call_at(patience.deadline, give_up, late)
        patience.left.on_disconnect(partial(give_up, ClientLeft()))
        try:
            return await running.answer
        except CancelledError:
            self._workers.abandon(running)
            raise
        finally:
            timer.cancel()
            patience.left.on_disconnect(None)

    def _measured(self, model: ServedModel, job: ModelJob[T], cancellation: Cancellation) -> T:
        start = time.thread_time()
        result = attempt(model, job, cancellation)
        self._pace = min(time.thread_time() - start, self._pace or math.inf)
        self._to_measure -= 1
        return result


def answer(ask: Ask[T], model: ServedModel, cancellation: Cancellation | None) -> T:
    """Decode, infer, encode. Raises ServingError, EngineError, and whatever code of others raises."""
    call, encode = ask(model)
    return encode(call, model.engine.infer(call.inputs, call.outputs, cancellation))


def attempt(model: ServedModel, job: ModelJob[T], cancellation: Cancellation | None) -> T:
    """Do the job. Raises ServingError; what else goes wrong is logged under an id that the caller gets.

    The log has the traceback of an error that is the model's, with the lines of its code; the answer never has.
    """
    try:
        return job(model, cancellation)
    except ServingError:
        raise
    except Cancelled as error:
        raise ClientLeft from error
    except InputRefused as error:
        raise BadRequest(f"the model does not take this input ({_logged(model, error)})") from error
    except Exception as error:  # engines run code of others
        if is_lost(error):
            raise DeviceLost(f"{DEVICE_LOST} ({_logged(model, error)})") from error
        raise ModelFailed(f"the model failed on this input ({_logged(model, error, traced=True)})") from error


def _size_of(answers: Sequence[Tensor]) -> int:
    """Bytes of them, roughly; texts, which NumPy only refers to, are looked at if there are not too many for that."""
    size = sum(int(tensor.nbytes) for tensor in answers)
    if size > INLINE_BODY:
        return size
    texts = (tensor.flat for tensor in answers if datatype_of(tensor).name == BYTES)
    return size + sum(map(len, chain.from_iterable(texts)))


def _logged(model: ServedModel, error: Exception, *, traced: bool = False) -> str:
    """Log the error, with its traceback if `traced`, and return the id to find it by."""
    number = secrets.token_hex(4)
    words = one_line(str(error), LONGEST_WORDS)  # may quote a caller, whose escape sequences `repr` shows
    details = f"\n{traceback_of(error)}" if traced else ""
    log.warning("model=%s error=%s %s: %r%s", model.name, number, type(error).__name__, words, details)
    return f"error {number}; its details are in the server's log"
