"""ASGI endpoint of an inference: body in, the model's answer out, in the messages of one protocol."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from serving.engines.base import Cancellation
from serving.server.answers import BINARY, JSON, send_body, send_error
from serving.server.body import Body, read_body
from serving.server.connection import connection_of
from serving.server.errors import ClientLeft, ServingError
from serving.server.inference import Inference
from serving.server.lifecycle import ServedModel
from serving.server.limits import BodyBudget
from serving.server.protocol_v2 import Dialect, Reply

LENGTH_HEADER: Final = b"inference-header-content-length"

DialectOf = Callable[[ServedModel], Dialect[Any]]
"""The messages of a protocol, for a model."""
V2: Final[DialectOf] = attrgetter("codec")


class Infer:
    """ASGI endpoint of `POST …/infer`, or of another protocol's inference."""

    def __init__(self, inference: Inference, budget: BodyBudget, dialect_of: DialectOf = V2) -> None:
        self._inference = inference
        self._budget = budget
        self._dialect_of = dialect_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            model = self._inference.model()
            body = await read_body(scope, receive, self._budget, model.codec.limits.body)
            try:
                reply = await self._inference.run(
                    lambda model, cancellation: answer(model, body, cancellation, self._dialect_of),
                    len(body.content),
                    connection_of(scope),
                )
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


def answer(model: ServedModel, body: Body, cancellation: Cancellation | None, dialect_of: DialectOf = V2) -> Reply:
    """Decode, infer, encode. Raises ServingError, EngineError, and whatever code of others raises."""
    dialect = dialect_of(model)
    call = dialect.decode(body.content, body.json_length)
    return dialect.encode(call, model.engine.infer(call.inputs, call.outputs, cancellation))
