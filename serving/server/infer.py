"""The path of an inference request: body, slot, model, answer.

Short inferences of models without loops run on the event loop: a hop to a thread costs more than they do. Whatever
turns out to be long runs in threads from then on.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from asyncio import AbstractEventLoop
from functools import partial
from typing import Final

from starlette.types import Receive, Scope, Send

from serving.engines.base import Cancellation
from serving.engines.errors import Cancelled, InputRefused
from serving.server.admission import Admission, fail
from serving.server.answers import BINARY, JSON, send_body, send_error
from serving.server.body import Body, read_body
from serving.server.connection import Connection, connection_of
from serving.server.errors import (
    BadRequest,
    ClientLeft,
    DeadlineExceeded,
    ModelFailed,
    QueueExpired,
    ServingError,
)
from serving.server.lifecycle import Lifecycle, ServedModel
from serving.server.limits import BodyBudget
from serving.server.protocol_v2 import Reply
from serving.server.workers import Job, Workers

log = logging.getLogger(__name__)

INLINE_PACE: Final = 0.0005  # s of CPU; the hop to a thread and back takes a fifth of it
INLINE_BODY: Final = 16 * 1024  # bytes; larger inputs take longer than the warm-up told
INLINE_STRIKE: Final = 0.005  # s of CPU that an inference on the loop took: the model is not as fast as thought
MOST_STRIKES: Final = 3
PACE_SAMPLES: Final = 100  # small requests; the first ones do what happens only once
LENGTH_HEADER: Final = b"inference-header-content-length"


class Infer:
    """ASGI endpoint of `POST …/infer`."""

    def __init__(
        self, lifecycle: Lifecycle, admission: Admission, workers: Workers, budget: BodyBudget, timeout: float,
        loop: AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._lifecycle = lifecycle
        self._admission = admission
        self._workers = workers
        self._budget = budget
        self._timeout = timeout
        self._loop = loop
        self._strikes = 0
        self._pace: float | None = None  # of a model that was not warmed up, from its first small requests
        self._to_measure = PACE_SAMPLES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = connection_of(scope)
        try:
            model = self._lifecycle.model()
            body = await read_body(scope, receive, self._budget)
            try:
                reply = await self._reply(model, body, connection)
            finally:
                self._budget.give_back(body.lent)
        except ClientLeft:
            return
        except ServingError as error:
            await send_error(send, error)
            return
        if reply.json_length is None:
            await send_body(send, 200, reply.body, JSON, [])
        else:
            await send_body(send, 200, reply.body, BINARY, [(LENGTH_HEADER, b"%d" % reply.json_length)])

    async def _reply(self, model: ServedModel, body: Body, connection: Connection) -> Reply:
        deadline = self._loop.time() + self._timeout
        if not self._admission.try_enter():
            await self._wait_for_slot(deadline, connection)
        try:
            if self._is_short(model, body):
                return self._here(model, body)
            return await self._in_thread(model, body, deadline, connection)
        finally:
            self._admission.leave()

    async def _wait_for_slot(self, deadline: float, connection: Connection) -> None:
        place = self._admission.join_queue()
        expired = QueueExpired(f"no slot was free within {self._timeout:g} s: try again")
        timer = self._loop.call_at(deadline, fail, place, expired)
        connection.when_gone(partial(fail, place, ClientLeft()))
        try:
            await place
        except BaseException:
            self._admission.leave_queue(place)
            raise
        finally:
            timer.cancel()
            connection.when_gone(None)

    def _is_short(self, model: ServedModel, body: Body) -> bool:
        pace = self._pace if model.pace is None else model.pace
        return (
            pace is not None
            and pace < INLINE_PACE
            and len(body.content) <= INLINE_BODY
            and self._strikes < MOST_STRIKES
            and model.engine.bounded
        )

    def _here(self, model: ServedModel, body: Body) -> Reply:
        start = time.thread_time()
        try:
            return answer(model, body, None)
        finally:
            if time.thread_time() - start > INLINE_STRIKE:
                self._strikes += 1

    async def _in_thread(self, model: ServedModel, body: Body, deadline: float, connection: Connection) -> Reply:
        job = partial(answer, model, body)
        if model.pace is None and self._to_measure and len(body.content) <= INLINE_BODY:
            job = partial(self._measured, job)
        running = self._workers.submit(job)
        give_up = partial(self._workers.give_up, running)
        timer = self._loop.call_at(deadline, give_up, DeadlineExceeded(f"no answer within {self._timeout:g} s"))
        connection.when_gone(partial(give_up, ClientLeft()))
        try:
            return await running.answer
        finally:
            timer.cancel()
            connection.when_gone(None)

    def _measured(self, job: Job[Reply], cancellation: Cancellation) -> Reply:
        start = time.thread_time()
        reply = job(cancellation)
        self._pace = min(time.thread_time() - start, self._pace or math.inf)
        self._to_measure -= 1
        return reply


def answer(model: ServedModel, body: Body, cancellation: Cancellation | None) -> Reply:
    """Decode, infer, encode. Raises ServingError; what else goes wrong is logged under an id that the caller gets."""
    try:
        call = model.codec.decode(body.content, body.json_length)
        return model.codec.encode(call, model.engine.infer(call.inputs, call.outputs, cancellation))
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
