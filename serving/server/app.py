"""The data port: paths of the Open Inference Protocol v2 and what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.engines.base import ANY, TensorSpec
from serving.server.answers import JSON, error_body, error_headers, json_body
from serving.server.errors import NotFound, NotReady, ServingError
from serving.server.lifecycle import Lifecycle

SERVER_NAME: Final = "knodel"
EXTENSIONS: Final = ("binary_tensor_data",)
"""What `/v2` announces: only what works."""
MODEL: Final = "/v2/models/{name}"
VERSION: Final = MODEL + "/versions/{version}"
_SHOWN: Final = 63  # characters of a caller's name that an error repeats: as many as a name has

Handler = Callable[[Request], Awaitable[Response]]


class DataApp:
    """The ASGI application of the data port for the model `name`, revision `revision`."""

    def __init__(self, name: str, revision: str, lifecycle: Lifecycle, infer: ASGIApp) -> None:
        self._name = name
        self._revision = revision
        self._lifecycle = lifecycle
        self._infer = infer
        self._infer_path = f"/v2/models/{name}/infer"
        self._app = make_app([*health_routes(lifecycle), *self._routes()])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request; past the middle layers when it is what almost all requests are (a third of their time)."""
        if scope["path"] == self._infer_path and scope["method"] == "POST":
            await self._infer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        checked_infer = _Checked(self._check, self._infer)
        routes: list[BaseRoute] = [Route("/v2", _server), Route("/v2/", _server)]
        for model in (VERSION, MODEL):
            routes += [
                Route(model, self._metadata),
                Route(f"{model}/ready", self._ready),
                Route(f"{model}/infer", checked_infer, methods=["POST"]),
            ]
        return routes

    async def _metadata(self, request: Request) -> Response:
        self._check(request.path_params)
        model = self._lifecycle.model()
        signature = model.signature
        return json_answer(
            {
                "name": model.name,
                "versions": list(model.versions),
                "platform": signature.platform,
                "inputs": _described(signature.inputs),
                "outputs": _described(signature.outputs),
            }
        )

    async def _ready(self, request: Request) -> Response:
        self._check(request.path_params)
        return _readiness(self._lifecycle, {"name": self._name})

    def _check(self, params: dict[str, Any]) -> None:
        """Raise NotFound for another model or version than this server has."""
        if params["name"] != self._name:
            raise NotFound(f"unknown model {params['name'][:_SHOWN]!r}")
        version = params.get("version")
        if version is not None and not _is_version(version, self._revision):
            raise NotFound(f"model {self._name!r} has no version {version[:_SHOWN]!r} here")


class _Checked:
    """An ASGI endpoint behind a check of its path."""

    def __init__(self, check: Callable[[dict[str, Any]], None], app: ASGIApp) -> None:
        self._check = check
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check(scope["path_params"])
        await self._app(scope, receive, send)


def make_app(routes: Sequence[BaseRoute]) -> Starlette:
    """An application whose errors are all `{"error": "…"}`."""
    return Starlette(routes=routes, exception_handlers={HTTPException: _on_http_error, ServingError: _on_error})


def health_routes(lifecycle: Lifecycle) -> list[BaseRoute]:
    """`/v2/health/live` and `/v2/health/ready`."""

    async def live(_: Request) -> Response:
        return json_answer({"live": True})

    async def ready(_: Request) -> Response:
        return _readiness(lifecycle, {})

    return [Route("/v2/health/live", live), Route("/v2/health/ready", ready)]


def json_answer(content: Any, status: int = 200) -> Response:
    """`content` as JSON."""
    return Response(json_body(content), status, media_type=JSON.decode())


async def _server(_: Request) -> Response:
    from serving.apis.version import VERSION as version  # reads the distribution's metadata

    return json_answer({"name": SERVER_NAME, "version": version, "extensions": EXTENSIONS})


def _readiness(lifecycle: Lifecycle, about: dict[str, Any]) -> Response:
    if lifecycle.ready:
        return json_answer({**about, "ready": True})
    answer = json_answer({**about, "ready": False, "error": lifecycle.reason}, NotReady.status)
    answer.headers["retry-after"] = str(NotReady.retry_after)
    return answer


def _described(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    unknown = (ANY,)  # the protocol has no word for an unknown rank
    return [
        {"name": spec.name, "datatype": spec.datatype, "shape": unknown if spec.shape is None else spec.shape}
        for spec in specs
    ]


def _is_version(version: str, revision: str) -> bool:
    """Whether `version` names the revision: as such, or by its number alone."""
    if version == revision:
        return True
    number = revision.rpartition("-")[2]
    return version.isascii() and version.isdigit() and number.isdigit() and version.lstrip("0") == number.lstrip("0")


async def _on_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, ServingError):
        raise error
    return _error_answer(error.status, str(error), error_headers(error))


async def _on_http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    return _error_answer(error.status_code, error.detail, headers)


def _error_answer(status: int, message: str, headers: list[tuple[bytes, bytes]]) -> Response:
    answer = Response(error_body(message), status, media_type=JSON.decode())
    answer.raw_headers.extend(headers)
    return answer
