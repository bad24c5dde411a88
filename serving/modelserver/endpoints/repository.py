"""The model repository extension on the management port: list, load and unload models.

The protocol is Triton's (`protocol/extension_model_repository.md`), with the parameters of `base.assignment`. Load and
unload calls need the bearer token. The index needs it only in a member of a warm pool, whose model is not public.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from clusters.base.errors import KnodelError
from serving.modelserver.base.errors import InvalidRequest, NotReady, ServingError, Unauthorized
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.options import LOAD_TOKEN
from serving.modelserver.codec.bounded_read import read_content
from serving.modelserver.endpoints.app import json_response, server_routes
from serving.modelserver.execution.lifecycle import ModelLifecycle

T = TypeVar("T")

MAX_BODY_SIZE: Final = 64 * 1024  # bytes; calls of the platform have about 300
EXTENSIONS: Final = ("model_repository",)
"""Extensions in the server metadata (`/v2`) of the management port."""
READY: Final = "READY"
LOADING: Final = "LOADING"
UNLOADING: Final = "UNLOADING"
UNAVAILABLE: Final = "UNAVAILABLE"
"""States of a model, as the extension names them."""
_MODELS: Final = "/v2/repository/models/{name}"


class IndexEntry(msgspec.Struct, frozen=True):
    """An entry of the index; `reason` explains the state, "" if there is nothing to explain."""

    name: str
    version: str
    state: str
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the JSON of the index."""
        return {"name": self.name, "version": self.version, "state": self.state, "reason": self.reason}


class ModelRepository(Protocol):
    """The models of a server, one or many."""

    @property
    def lifecycle(self) -> ModelLifecycle:
        """Return the lifecycle of the server."""
        ...

    def index(self) -> Sequence[IndexEntry]:
        """Return all models."""
        ...

    async def load_call(self, name: str, body: bytes) -> str:
        """Load a model by the body of a load call, and return its state. Raises ServingError, KnodelError."""
        ...

    async def unload_call(self, name: str) -> str:
        """Unload a model, and return its state. Raises ServingError, KnodelError."""
        ...


class _Filter(msgspec.Struct, forbid_unknown_fields=True):
    ready: bool = False


class _Unload(msgspec.Struct, forbid_unknown_fields=True):
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class BearerToken(msgspec.Struct, frozen=True):
    """Authorization of load and unload calls by a token; `sha256` is its digest in hex, "" to refuse all calls."""

    sha256: str

    def check(self, authorization: str) -> None:
        """Raise Unauthorized unless the header is `Bearer TOKEN` with the right token."""
        scheme, _, token = authorization.partition(" ")
        found = hashlib.sha256(token.strip().encode("latin-1", "replace")).hexdigest().encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(found, self.sha256.encode()):
            raise Unauthorized(f"this call needs the bearer token whose SHA-256 is in {LOAD_TOKEN} of the server")


class RepositoryRoutes:
    """The routes of the extension; if `is_open`, the index needs no token."""

    def __init__(self, models: ModelRepository, bearer: BearerToken, *, is_open: bool) -> None:
        self._models = models
        self._bearer = bearer
        self._is_open = is_open
        self._budget = BodyBudget(MAX_BODY_SIZE)

    def routes(self) -> list[BaseRoute]:
        """Return the routes for the management port."""
        return [
            *server_routes(EXTENSIONS, ["/v2"]),
            Route("/v2/repository/index", self._index, methods=["GET", "POST"]),
            Route(f"{_MODELS}/load", self._load, methods=["POST"]),
            Route(f"{_MODELS}/unload", self._unload, methods=["POST"]),
        ]

    async def _index(self, request: Request) -> Response:
        if not self._is_open:
            self._check(request)
        wanted = _decoded(await self._body(request), _Filter, '{"ready": true | false}')
        found = [entry for entry in self._models.index() if entry.state == READY or not wanted.ready]
        return json_response([entry.to_json() for entry in found])

    async def _load(self, request: Request) -> Response:
        self._check(request)
        name, body = request.path_params["name"], await self._body(request)
        self._refuse_while_draining()
        return await _state_response(name, self._models.load_call(name, body))

    async def _unload(self, request: Request) -> Response:
        self._check(request)
        name, body = request.path_params["name"], await self._body(request)
        parameters = _decoded(body, _Unload, '{"parameters": {…}}').parameters
        if parameters.keys() - {"unload_dependents"}:  # models have no dependents here, so the parameter has no effect
            raise InvalidRequest("unsupported parameter: an unload call has only unload_dependents")
        self._refuse_while_draining()
        return await _state_response(name, self._models.unload_call(name))

    def _check(self, request: Request) -> None:
        self._bearer.check(request.headers.get("authorization", ""))

    async def _body(self, request: Request) -> bytes:
        content, lent = await read_content(request.receive, self._budget)
        self._budget.give_back(lent)
        return content

    def _refuse_while_draining(self) -> None:
        if self._models.lifecycle.draining:
            raise NotReady(self._models.lifecycle.reason)


async def _state_response(name: str, work: Awaitable[str]) -> Response:
    """Return a response with the state that `work` returns. Raises ServingError, also for other errors of Knodel."""
    try:
        return json_response({"name": name, "state": await work})
    except ServingError:
        raise
    except KnodelError as error:
        raise InvalidRequest(str(error)) from error


def _decoded(body: bytes, kind: type[T], form: str) -> T:
    """Return the decoded body, which may be empty. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not {form}: {error}") from error
