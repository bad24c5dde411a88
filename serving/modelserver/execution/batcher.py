"""Dynamic batching: requests gather into the next batch while the engine runs the current one.

The rule is the simplest one with which a model with 16 concurrent callers runs in batches of 16:

- An idle engine takes all waiting requests at once, so a single caller never waits for others.
- Callers that have just received a response often send their next request at once. So after a batch the batcher waits
  for at most `max_latency`, until as many requests wait as were in the batch and beside it. Without this wait, batches
  of one would alternate with batches of all other callers.
- After `MAX_BATCH_WAIT` seconds a running batch no longer holds up the next one, which starts in another thread.

Batching does not harm single requests. A request that is cancelled gives up its place, and a batch without any waiting
caller is cancelled. When a batch fails, its requests are run again one by one, so only invalid requests fail. A model
is no longer batched once it returns an output that does not have one row for each input row.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation
from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.errors import (
    ClientLeft,
    DeadlineExceeded,
    ModelFailed,
    QueueExpired,
    ServingError,
    release_frames,
)
from serving.modelserver.base.limits import Lease
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution.batch import (
    BatchKey,
    Rows,
    concatenate_inputs,
    first_unbatchable,
    rows_of,
    split_outputs,
)
from serving.modelserver.execution.inference import Prepare, RequestContext, Respond, run_job
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.slot_queue import fail_future
from serving.modelserver.execution.workers import RunningJob, Workers

log = logging.getLogger(__name__)

MAX_BATCH_WAIT: Final = 1.0  # s; most batches take less, and a hanging request delays the others no longer than this

T = TypeVar("T")
Outputs: TypeAlias = Sequence[Tensor]


class BatchMember:
    """A request that waits for a batch or is in one. `key` is None for a request that must run alone."""

    __slots__ = ("batch", "body", "call", "key", "model", "on_batch", "outputs", "rows")

    def __init__(
        self, model: ServedModel, call: PreparedRequest, rows: Rows | None, request: RequestContext,
        outputs: Future[Outputs],
    ) -> None:  # fmt: skip
        self.model = model
        self.call = call
        self.body = request.body
        self.on_batch = request.on_batch
        self.outputs = outputs
        self.batch: InferenceBatch | None = None
        self.key: BatchKey | None = None if rows is None else rows.key
        self.rows = 1 if rows is None else rows.count


class InferenceBatch:
    """The requests of one inference. `timer` runs until `MAX_BATCH_WAIT` has passed, and is None from then on."""

    __slots__ = ("members", "running", "timer")

    def __init__(self, members: Sequence[BatchMember], running: RunningJob[list[Outputs] | None]) -> None:
        self.members = members
        self.running = running
        self.timer: asyncio.TimerHandle | None = None


class Batcher:
    """Batches the requests of one model. `observe` receives the number of requests of each batch.

    Not thread-safe: only the event loop may use it.
    """

    def __init__(
        self, batching: BatchBounds, workers: Workers, loop: AbstractEventLoop, observe: Callable[[int], None]
    ) -> None:
        self._batching = batching
        self._workers = workers
        self._loop = loop
        self._observe = observe
        self._waiting: list[BatchMember] = []
        self._busy = False
        self._expected = 0  # requests that wait soon if the callers of the last batch send their next requests
        self._gather_timer: asyncio.TimerHandle | None = None  # set while the batcher waits for these requests
        self._model: ServedModel | None = None
        self._batchable = False  # whether `_model` can be batched

    def can_batch(self, model: ServedModel) -> bool:
        """Return whether requests for the model can share inferences, as far as is known."""
        if self._model is not model:
            self._model = model
            fixed = first_unbatchable(model.signature)
            self._batchable = not fixed
            if fixed:
                log.warning("model=%s is not batched: the first dimension of %s is not variable", model.name, fixed)
        return self._batchable

    @staticmethod
    def prepare(
        prepare: Prepare[T], model: ServedModel, _: Cancellation | None
    ) -> tuple[PreparedRequest, Respond[T], Rows | None]:
        """Decode a request and return its call, its response encoder and its rows.

        Blocks: `rows_of` may inspect each element. Raises the errors of `prepare`.
        """
        call, respond = prepare(model)
        return call, respond, rows_of(call)

    async def infer(
        self, model: ServedModel, call: PreparedRequest, rows: Rows | None, request: RequestContext
    ) -> Outputs:
        """Return the model's outputs for `call`, whose rows are `rows`.

        Raises ServingError. Cancelling the task means that the client has disconnected.
        """
        member = BatchMember(model, call, rows, request, self._loop.create_future())
        self._waiting.append(member)
        self._start_batches()

        def expire() -> None:
            if member.batch is None:
                error: ServingError = QueueExpired(f"no batch had room within {request.timeout:g} s: try again")
            else:
                error = DeadlineExceeded(f"no answer within {request.timeout:g} s")
            self._fail(member, error)

        timer = self._loop.call_at(request.deadline, expire)
        request.client.on_disconnect(partial(self._fail, member, ClientLeft()))
        try:
            return await member.outputs
        finally:
            timer.cancel()
            request.client.on_disconnect(None)
            if member.outputs.cancelled():
                self._remove(member)

    def _fail(self, member: BatchMember, error: ServingError) -> None:
        if not member.outputs.done():
            member.outputs.set_exception(error)
            self._remove(member)

    def _remove(self, member: BatchMember) -> None:
        """Remove a member whose client no longer waits, and cancel a batch without any waiting client."""
        if member.batch is None:
            self._waiting = [one for one in self._waiting if one is not member]
        elif all(one.outputs.done() for one in member.batch.members):
            self._workers.cancel(member.batch.running, ClientLeft())

    def _start_batches(self) -> None:
        """Start the next batch if the engine is free and no larger batch is expected."""
        while self._waiting and not self._busy and not self._expects_more():
            self._start(self._take_next())

    def _expects_more(self) -> bool:
        if self._gather_timer is None:
            return False
        waiting = self._waiting
        rows = sum(member.rows for member in waiting)
        return waiting[0].key is not None and len(waiting) < self._expected and rows < self._batching.max_size

    def _take_next(self) -> list[BatchMember]:
        """Remove the first waiting member, and those with an equal key that fit, from the queue and return them."""
        first = self._waiting[0]
        chosen, rows = [first], first.rows
        for member in self._waiting[1:]:
            alike = member.key is not None and member.key == first.key and member.model is first.model
            if alike and rows + member.rows <= self._batching.max_size:
                chosen.append(member)
                rows += member.rows
        taken = set(chosen)
        self._waiting = [member for member in self._waiting if member not in taken]
        return chosen

    def _start(self, members: Sequence[BatchMember]) -> None:
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        model, calls, counts = members[0].model, [one.call for one in members], [one.rows for one in members]

        def let_go() -> None:
            for member in members:
                member.body.release()

        def stop_waiting() -> None:  # starts the next batch beside one that takes long
            batch.timer = None
            self._busy = False
            self._start_batches()

        bodies = Lease(let_go, sum(member.body.size for member in members))
        try:
            running = self._workers.submit(partial(_infer, model, calls, counts), lambda: self._finish(batch), bodies)
        except ServingError as error:
            for member in members:
                fail_future(member.outputs, error)
            return
        batch = InferenceBatch(members, running)
        self._busy = True
        self._observe(len(members))
        batch.timer = self._loop.call_later(MAX_BATCH_WAIT, stop_waiting)
        for member in members:
            member.batch = batch
            member.body.retain()
            if member.on_batch is not None:
                member.on_batch(len(members))
        bodies.release()  # the thread has its own share

    def _finish(self, batch: InferenceBatch) -> None:
        """Distribute the result of a batch that has ended, or was cancelled and hangs, and start the next batch."""
        self._distribute(batch)
        if batch.timer is not None:
            batch.timer.cancel()
            self._busy = False
            if self._batching.max_latency:
                self._expected = len(batch.members) + len(self._waiting)
                self._gather_timer = self._loop.call_later(self._batching.max_latency, self._stop_gathering)
        self._start_batches()

    def _distribute(self, batch: InferenceBatch) -> None:
        """Give each member its outputs. Members of a failed batch return to the queue, to run one by one."""
        error = batch.running.result.exception()
        if error is not None:
            release_frames(error)
        outputs = None if error is not None else batch.running.result.result()
        if outputs is not None:
            for member, own in zip(batch.members, outputs, strict=True):
                if not member.outputs.done():
                    member.outputs.set_result(own)
        elif len(batch.members) == 1:
            own_error = (
                error if isinstance(error, ServingError) else ModelFailed("the model ended during the inference")
            )
            fail_future(batch.members[0].outputs, own_error)
        else:
            model = batch.members[0].model
            if error is None and self._batchable and self._model is model:
                self._batchable = False
                log.warning("model=%s is no longer batched: an output does not have one row per input row", model.name)
            again = [member for member in batch.members if not member.outputs.done()]
            for member in again:
                member.batch = member.key = None
            self._waiting[:0] = again  # before all others, which came later

    def _stop_gathering(self) -> None:
        self._gather_timer = None
        self._start_batches()


def _infer(
    model: ServedModel, calls: Sequence[PreparedRequest], counts: Sequence[int], cancellation: Cancellation
) -> list[Outputs] | None:
    """Return the outputs for each call; None if the outputs of the batch cannot be divided.

    Raises ServingError for a single call, and any error of the engine for several calls.
    """
    if len(calls) > 1:
        return split_outputs(model.engine.infer(concatenate_inputs(calls), calls[0].outputs, cancellation), counts)

    def infer(model: ServedModel, cancellation: Cancellation | None) -> Outputs:
        return model.engine.infer(calls[0].inputs, calls[0].outputs, cancellation)

    return [run_job(model, infer, cancellation)]
