"""ASGI endpoint of an inference: body in, the model's answer out, in the messages of one protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from serving.modelserver.base.errors import ClientLeft, ServingError, release_frames
from serving.modelserver.base.headers import JSON_LENGTH
from serving.modelserver.base.limits import BodyBudget, Lease
from serving.modelserver.base.responses import BINARY, JSON, send_body, send_error
from serving.modelserver.codec.bounded_read import RequestBody, read_body
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ProtocolCodec, ResponseBody
from serving.modelserver.connections.connection import connection_of
from serving.modelserver.execution.inference import BEGAN, Ask, Encode, Inference
from serving.modelserver.execution.lifecycle import ServedModel

CodecOf = Callable[[ServedModel], ProtocolCodec[Any]]
"""The messages of a protocol, for a model."""
V2: Final[CodecOf] = attrgetter("codec")


class InferenceEndpoint(ABC):
    """ASGI endpoint: a body is read, answered, and given back."""

    def __init__(self, inference: Inference, budget: BodyBudget, dialect_of: CodecOf = V2) -> None:
        self._inference = inference
        self._budget = budget
        self._dialect_of = dialect_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            reply = await self._reply(scope, receive, send)
        except ServingError as error:
            release_frames(error)
            if not isinstance(error, ClientLeft):
                await send_error(send, error)
            return
        if reply is None:
            return
        if reply.json_length is None:
            await send_body(send, 200, reply.body, JSON, [])
        else:
            await send_body(send, 200, reply.body, BINARY, [(JSON_LENGTH, b"%d" % reply.json_length)])

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> ResponseBody | None:
        """Read the body and return its answer; the body is gone before a slow caller takes the answer."""
        model = self._inference.model()
        body = await read_body(scope, receive, self._budget, model.codec.limits.body)
        held = Lease(partial(self._budget.give_back, body.lent), body.lent)
        try:
            return await self.answer(body, held, scope, send)
        finally:
            held.release()

    @abstractmethod
    async def answer(self, body: RequestBody, held: Lease, scope: Scope, send: Send) -> ResponseBody | None:
        """The answer; None when it has been sent. Raises ServingError, if nothing was sent yet.

        `held` is the memory of the body, for whoever works on it longer than this lasts.
        """


class UnaryEndpoint(InferenceEndpoint):
    """ASGI endpoint of `POST …/infer`, or of another protocol's inference."""

    async def answer(self, body: RequestBody, held: Lease, scope: Scope, _: Send) -> ResponseBody | None:
        """The whole answer. Raises ServingError."""
        ask = prepare_request(body, self._dialect_of)
        return await self._inference.infer(
            ask, len(body.content), connection_of(scope), began=scope.get(BEGAN), body=held
        )


def prepare_request(body: RequestBody, dialect_of: CodecOf = V2) -> Ask[ResponseBody]:
    """The request in `body`, for `Inference`."""

    def ask(model: ServedModel) -> tuple[PreparedRequest, Encode[ResponseBody]]:
        dialect = dialect_of(model)
        return dialect.decode(body.content, body.json_length), dialect.encode

    return ask
