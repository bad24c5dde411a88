"""Requests that share an inference: while one batch is in the engine, the next one gathers.

The rule, the simplest that lets a model of 16 callers work in batches of 16:

- a free engine takes what waits at once, so that a lone caller never waits for others;
- but callers that were just answered may ask again at once. Behind a batch it waits until as many wait as were in it
  and beside it, for `max_latency` at most; without this, batches of one and of all others would take turns;
- a batch that takes longer than `PATIENCE` is waited for no more: the next one begins beside it, in another thread.

No request is worse off for those beside it: one that leaves takes its place with it, and the engine is asked to end
when nobody is left. A batch that fails is asked again one by one, so that only whom the model refuses is refused. A
model whose answer has not a row for each row is batched no more.
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
from serving.modelserver.execution.admission import fail
from serving.modelserver.execution.batch import Kind, Rows, merged, parts, rows_of, unbatchable
from serving.modelserver.execution.inference import Ask, Encode, Patience, attempt
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.workers import Running, Workers

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0  # s; many batches take less, and a request that hangs holds up the others no longer

T = TypeVar("T")
Answers: TypeAlias = Sequence[Tensor]


class Member:
    """A request that waits for its batch, or is in it; `kind` is None for one that is asked alone."""

    __slots__ = ("answer", "batch", "body", "call", "kind", "model", "rows")

    def __init__(
        self, model: ServedModel, call: PreparedRequest, rows: Rows | None, body: Lease, answer: Future[Answers]
    ) -> None:
        self.model = model
        self.call = call
        self.body = body
        self.answer = answer
        self.batch: Batch | None = None
        self.kind: Kind | None = None if rows is None else rows.kind
        self.rows = 1 if rows is None else rows.count


class Batch:
    """Requests in one inference."""

    __slots__ = ("members", "running", "timer")

    def __init__(self, members: Sequence[Member], running: Running[list[Answers] | None]) -> None:
        self.members = members
        self.running = running
        self.timer: asyncio.TimerHandle | None = None  # until nobody waits for it; None from then on


class Batcher:
    """Batches of one server's model; `observe` is told how many requests were in each. Used by the event loop."""

    def __init__(
        self, batching: BatchBounds, workers: Workers, loop: AbstractEventLoop, observe: Callable[[int], None]
    ) -> None:
        self._batching = batching
        self._workers = workers
        self._loop = loop
        self._observe = observe
        self._waiting: list[Member] = []
        self._busy = False
        self._expected = 0  # requests that soon wait, if those that were just answered come again …
        self._hope: asyncio.TimerHandle | None = None  # … which is hoped for so long
        self._model: ServedModel | None = None
        self._works = False  # for this model

    def works_for(self, model: ServedModel) -> bool:
        """Whether requests for it can share inferences, as far as is known."""
        if self._model is not model:
            self._model = model
            fixed = unbatchable(model.signature)
            self._works = not fixed
            if fixed:
                log.warning("model=%s is not batched: %s has no dimension for the rows of a batch", model.name, fixed)
        return self._works

    @staticmethod
    def asked(
        ask: Ask[T], model: ServedModel, _: Cancellation | None
    ) -> tuple[PreparedRequest, Encode[T], Rows | None]:
        """What a request asks, and its `rows_of`; blocks: each of its elements may be looked at. Raises as `ask`."""
        call, encode = ask(model)
        return call, encode, rows_of(call)

    async def infer(self, model: ServedModel, call: PreparedRequest, rows: Rows | None, patience: Patience) -> Answers:
        """The model's answer to `call`, with its `rows_of`.

        Raises ServingError; a task that is cancelled is a caller that left.
        """
        member = Member(model, call, rows, patience.body, self._loop.create_future())
        self._waiting.append(member)
        self._look()
        timer = self._loop.call_at(patience.deadline, self._expire, member, patience.timeout)
        patience.left.on_disconnect(partial(self._fail, member, ClientLeft()))
        try:
            return await member.answer
        finally:
            timer.cancel()
            patience.left.on_disconnect(None)
            if member.answer.cancelled():
                self._forget(member)

    def _expire(self, member: Member, timeout: float) -> None:
        if member.batch is None:
            self._fail(member, QueueExpired(f"no batch had room within {timeout:g} s: try again"))
        else:
            self._fail(member, DeadlineExceeded(f"no answer within {timeout:g} s"))

    def _fail(self, member: Member, error: ServingError) -> None:
        if not member.answer.done():
            member.answer.set_exception(error)
            self._forget(member)

    def _forget(self, member: Member) -> None:
        """Nobody waits for it any more."""
        if member.batch is None:
            self._waiting = [one for one in self._waiting if one is not member]
        elif all(one.answer.done() for one in member.batch.members):
            self._workers.give_up(member.batch.running, ClientLeft())

    def _look(self) -> None:
        """Begin a batch if the engine is free, unless there is hope for a larger one."""
        while self._waiting and not self._busy and not self._hopes():
            self._begin(self._next())

    def _hopes(self) -> bool:
        if self._hope is None:
            return False
        waiting = self._waiting
        rows = sum(member.rows for member in waiting)
        return waiting[0].kind is not None and len(waiting) < self._expected and rows < self._batching.max_size

    def _next(self) -> list[Member]:
        """The first that waits, and all of its kind that fit; they wait no more."""
        first = self._waiting[0]
        chosen, rows = [first], first.rows
        for member in self._waiting[1:]:
            alike = member.kind is not None and member.kind == first.kind and member.model is first.model
            if alike and rows + member.rows <= self._batching.max_size:
                chosen.append(member)
                rows += member.rows
        taken = set(chosen)
        self._waiting = [member for member in self._waiting if member not in taken]
        return chosen

    def _begin(self, members: Sequence[Member]) -> None:
        self._end_hope()
        model, calls, counts = members[0].model, [one.call for one in members], [one.rows for one in members]
        bodies = Lease(partial(_let_go, members), sum(member.body.size for member in members))
        try:
            running = self._workers.submit(partial(_infer, model, calls, counts), lambda: self._end(batch), bodies)
        except ServingError as error:
            for member in members:
                fail(member.answer, error)
            return
        batch = Batch(members, running)
        self._busy = True
        self._observe(len(members))
        batch.timer = self._loop.call_later(PATIENCE, self._pass_over, batch)
        for member in members:
            member.batch = batch
            member.body.retain()
        bodies.release()  # the thread has them

    def _pass_over(self, batch: Batch) -> None:
        """It takes long: what waits is not to wait for it."""
        batch.timer = None
        self._busy = False
        self._look()

    def _end(self, batch: Batch) -> None:
        """The batch is over, or was given up and hangs."""
        self._tell(batch)
        if batch.timer is not None:
            batch.timer.cancel()
            self._busy = False
            self._begin_hope(len(batch.members) + len(self._waiting))
        self._look()

    def _tell(self, batch: Batch) -> None:
        """Give each its answer; or let them be asked one by one."""
        error = batch.running.answer.exception()
        if error is not None:
            release_frames(error)
        answers = None if error is not None else batch.running.answer.result()
        if answers is not None:
            for member, answer in zip(batch.members, answers, strict=True):
                if not member.answer.done():
                    member.answer.set_result(answer)
        elif len(batch.members) == 1:
            told = error if isinstance(error, ServingError) else ModelFailed("the model ended while it worked on this")
            fail(batch.members[0].answer, told)
        else:
            if error is None:
                self._give_up_batching(batch.members[0].model)
            self._ask_alone([member for member in batch.members if not member.answer.done()])

    def _ask_alone(self, members: Sequence[Member]) -> None:
        """Before all others, who came later."""
        for member in members:
            member.batch = member.kind = None
        self._waiting[:0] = members

    def _give_up_batching(self, model: ServedModel) -> None:
        if self._works and self._model is model:
            self._works = False
            log.warning("model=%s is batched no more: an output has not a row for each row of the batch", model.name)

    def _begin_hope(self, expected: int) -> None:
        if self._batching.max_latency:
            self._expected = expected
            self._hope = self._loop.call_later(self._batching.max_latency, self._lose_hope)

    def _lose_hope(self) -> None:
        self._hope = None
        self._look()

    def _end_hope(self) -> None:
        if self._hope is not None:
            self._hope.cancel()
            self._hope = None


def _infer(
    model: ServedModel, calls: Sequence[PreparedRequest], counts: Sequence[int], cancellation: Cancellation
) -> list[Answers] | None:
    """The answer to each call; None if the model's cannot be divided. Raises ServingError; of several anything."""
    if len(calls) == 1:
        return [attempt(model, partial(_ask, calls[0]), cancellation)]
    return parts(model.engine.infer(merged(calls), calls[0].outputs, cancellation), counts)


def _let_go(members: Sequence[Member]) -> None:
    for member in members:
        member.body.release()


def _ask(call: PreparedRequest, model: ServedModel, cancellation: Cancellation | None) -> Answers:
    return model.engine.infer(call.inputs, call.outputs, cancellation)
