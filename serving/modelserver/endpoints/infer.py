"""ASGI endpoints of inferences in one HTTP protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final

from starlette.types import Receive, Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import connection_of
from serving.modelserver.base.errors import ClientLeft, ServingError, release_frames
from serving.modelserver.base.headers import JSON_LENGTH
from serving.modelserver.base.limits import BodyBudget, Lease
from serving.modelserver.base.responses import BINARY, JSON, send_body, send_error
from serving.modelserver.base.split import TOKENS_KEY, TokenTimes
from serving.modelserver.codec.bounded_read import TYPES, BufferedBody, read_body
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ProtocolCodec, ResponseBody
from serving.modelserver.execution.inference import BEGAN, Inference, Prepare, Respond
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.openai.upstreams import upstream_of

CodecOf = Callable[[ServedModel], ProtocolCodec[Any]]
"""A function that returns the codec of a protocol for a model."""
V2: Final[CodecOf] = attrgetter("codec")


class InferenceEndpoint(ABC):
    """The base class of endpoints: reads the body, and gives its memory back after the response.

    `types` are the accepted Content-Types, `streams` is whether the response is a stream.
    """

    types: ClassVar[frozenset[bytes]] = TYPES
    streams: ClassVar[bool] = False

    def __init__(self, inference: Inference, budget: BodyBudget, codec_of: CodecOf = V2) -> None:
        self._inference = inference
        self._budget = budget
        self._codec_of = codec_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            response = await self._respond(scope, receive, send)
        except ServingError as error:
            release_frames(error)
            if not isinstance(error, ClientLeft):
                await self.send_error(send, error)
            return
        if response is None:
            return
        if response.json_length is None:
            await send_body(send, 200, response.body, JSON, [])
        else:
            await send_body(send, 200, response.body, BINARY, [(JSON_LENGTH, b"%d" % response.json_length)])

    async def send_error(self, send: Send, error: ServingError) -> None:
        """Send an error in the form of the protocol."""
        await send_error(send, error)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> ResponseBody | None:
        """Read the body and return the response, so that the body is freed before a slow client reads the response."""
        model = self._inference.model()
        body = await read_body(scope, receive, self._budget, model.codec.limits.body, self.types)
        lease = Lease(partial(self._budget.give_back, body.lent), body.lent)
        if upstream_of(model.engine) is not None:
            scope[TOKENS_KEY] = TokenTimes(self.streams)
        try:
            return await self.respond(body, lease, scope, send)
        finally:
            lease.release()

    @abstractmethod
    async def respond(self, body: BufferedBody, lease: Lease, scope: Scope, send: Send) -> ResponseBody | None:
        """Return the response, or None if it was sent. Raises ServingError if nothing was sent.

        A thread that uses the body for longer than this call must retain `lease`, its memory.
        """


class UnaryEndpoint(InferenceEndpoint):
    """An endpoint whose response is sent as a whole."""

    async def respond(self, body: BufferedBody, lease: Lease, scope: Scope, _: Send) -> ResponseBody | None:
        """Return the response. Raises ServingError."""
        prepare = prepare_request(body, self._codec_of)
        return await self._inference.infer(
            prepare, len(body.content), connection_of(scope, HttpConnection), began=scope.get(BEGAN), body=lease
        )


def prepare_request(body: BufferedBody, codec_of: CodecOf = V2) -> Prepare[ResponseBody]:
    """Return the function that decodes `body` for a model, for `Inference.infer`."""

    def prepare(model: ServedModel) -> tuple[PreparedRequest, Respond[ResponseBody]]:
        codec = codec_of(model)
        return codec.decode(body.content, body.json_length), codec.encode

    return prepare
