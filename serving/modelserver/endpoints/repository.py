"""The model repository extension on the management port: which models there are, loading and unloading them.

As Triton has it (`protocol/extension_model_repository.md`), and with the parameters of `assignment`. To load and unload
needs the token; to look needs it in a pool only, where nobody else knows yet what is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from clusters.base.errors import KnodelError
from serving.modelserver.base.errors import BadRequest, NotReady, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.codec.bounded_read import read_content
from serving.modelserver.endpoints.app import SERVER_NAME, json_response
from serving.modelserver.endpoints.repository import BearerToken
from serving.modelserver.execution.lifecycle import Lifecycle

T = TypeVar("T")

LARGEST_BODY: Final = 64 * 1024  # bytes; ours have some 300
EXTENSIONS: Final = ("model_repository",)
"""What `/v2` of the management port announces."""
READY: Final = "READY"
LOADING: Final = "LOADING"
UNLOADING: Final = "UNLOADING"
UNAVAILABLE: Final = "UNAVAILABLE"
"""States of a model, in the extension's words."""
_MODELS: Final = "/v2/repository/models/{name}"


class IndexEntry(msgspec.Struct, frozen=True):
    """A model of the index; `reason` says why it is in this state, "" where that goes without saying."""

    name: str
    version: str
    state: str
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        """As the index has it."""
        return {"name": self.name, "version": self.version, "state": self.state, "reason": self.reason}


class ModelRepository(Protocol):
    """The models of a server: one, or many."""

    @property
    def lifecycle(self) -> Lifecycle:
        """Of the server."""
        ...

    def index(self) -> Sequence[IndexEntry]:
        """All of them."""
        ...

    async def load_call(self, name: str, body: bytes) -> str:
        """The state of the model that a load call asks for. Raises ServingError, KnodelError."""
        ...

    async def unload_call(self, name: str) -> str:
        """The state of the model that an unload call names. Raises ServingError, KnodelError."""
        ...


class _Filter(msgspec.Struct, forbid_unknown_fields=True):
    ready: bool = False


class _Unload(msgspec.Struct, forbid_unknown_fields=True):
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class RepositoryRoutes:
    """`bearer` knows the token, `is_open`: who only looks needs none."""

    def __init__(self, models: ModelRepository, bearer: BearerToken, *, is_open: bool) -> None:
        self._models = models
        self._bearer = bearer
        self._is_open = is_open
        self._budget = BodyBudget(LARGEST_BODY)

    def routes(self) -> list[BaseRoute]:
        """Of the management port."""
        return [
            Route("/v2", _announce),
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
        return await _told(name, self._models.load_call(name, body))

    async def _unload(self, request: Request) -> Response:
        self._check(request)
        name, body = request.path_params["name"], await self._body(request)
        parameters = _decoded(body, _Unload, '{"parameters": {…}}').parameters
        if parameters.keys() - {"unload_dependents"}:  # there are none: models here know nothing of each other
            raise BadRequest("the only parameter of an unload call is unload_dependents")
        self._refuse_while_draining()
        return await _told(name, self._models.unload_call(name))

    def _check(self, request: Request) -> None:
        self._bearer.check(request.headers.get("authorization", ""))

    async def _body(self, request: Request) -> bytes:
        content, lent = await read_content(request.receive, self._budget)
        self._budget.give_back(lent)
        return content

    def _refuse_while_draining(self) -> None:
        if self._models.lifecycle.draining:
            raise NotReady(self._models.lifecycle.reason)


async def _announce(_: Request) -> Response:
    from clusters.base.version import VERSION  # reads the distribution's metadata

    return json_response({"name": SERVER_NAME, "version": VERSION, "extensions": EXTENSIONS})


async def _told(name: str, work: Awaitable[str]) -> Response:
    """The state that a model is in now. Raises ServingError; what else went wrong is told, for the platform asks."""
    try:
        return json_response({"name": name, "state": await work})
    except ServingError:
        raise
    except KnodelError as error:
        raise BadRequest(str(error)) from error


def _decoded(body: bytes, kind: type[T], form: str) -> T:
    """The body, or, as it may be left out, what is in none. Raises BadRequest."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is {form}: {error}") from error
