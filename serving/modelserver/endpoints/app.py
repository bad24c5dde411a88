"""The application of the data port: routes of the inference protocols v2 and v1, health and metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.net.server.connection import INTERNAL_ERROR
from clusters.net.server.errors import error_body
from serving.engines.base.engine import TensorSpec
from serving.modelserver.base.errors import NotReady, ResourceNotFound, ServingError
from serving.modelserver.base.responses import JSON, json_body
from serving.modelserver.codec.messages import metadata_shape
from serving.modelserver.endpoints.endpoints import Endpoints
from serving.modelserver.endpoints.pending_requests import HEALTH_PATHS
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.target import check_model
from serving.modelserver.openai.errors import ModelNotFound, openai_error, openai_error_body
from serving.modelserver.openai.listing import model_entry, model_list, model_names
from serving.modelserver.openai.paths import PATHS, PREFIX
from serving.modelserver.openai.upstreams import upstream_of

if TYPE_CHECKING:
    from serving.engines.upstream.remote import RemoteEngine

SERVER_NAME: Final = "knodel"
EXTENSIONS: Final = ("binary_tensor_data",)
"""Extensions in the server metadata (`/v2`)."""
MODEL: Final = "/v2/models/{name}"
VERSION: Final = MODEL + "/versions/{version}"
MODEL_V1: Final = "/v1/models/{name}"
INVOCATIONS: Final = "/invocations"
VERSION_V1: Final = MODEL_V1 + "/versions/{version}"

NO_PATH: Final = "no such path: GET / lists the paths of this server"

Handler = Callable[[Request], Awaitable[Response]]


class DataApp:
    """The ASGI application of the data port for the model `name`, revision `revision`."""

    def __init__(self, name: str, revision: str, lifecycle: ModelLifecycle, endpoints: Endpoints) -> None:
        self._name = name
        self._revision = revision
        self._lifecycle = lifecycle
        self._endpoints = endpoints
        self._common = {
            f"/v2/models/{name}/infer": endpoints.infer,
            f"/v1/models/{name}:predict": endpoints.predict,
            INVOCATIONS: endpoints.invocations,
            **{f"{start}{path}": endpoints.openai for path in PATHS for start in ("", PREFIX)},
            **endpoints.pipelines,
        }
        self._app = make_app([*health_routes(lifecycle), *self._routes()], NO_PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request. Inferences bypass Starlette, which would take a third of their time."""
        if self._lifecycle.serves_own_paths and scope["path"] not in HEALTH_PATHS:
            await self._endpoints.application(scope, receive, send)
            return
        common = self._common.get(scope["path"])
        if common is not None and scope["method"] == "POST":
            await common(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        endpoints = self._endpoints
        routes: list[BaseRoute] = [
            *server_routes(),
            Route("/", self._root),
            Route("/", self._no_post, methods=["POST"]),
            Route("/v1/models", self._names),
            Route("/openapi.json", self._document),
            Route(INVOCATIONS, PostEndpoint(lambda _: None, endpoints.invocations)),
            *mlflow_routes(self._lifecycle),
            *(Route(path, PostEndpoint(lambda _: None, app)) for path, app in endpoints.pipelines.items()),
            Route(f"{PREFIX}/v1/models", self._openai_models),
            Route(f"{PREFIX}/v1/models/{{name}}", self._openai_model),
            *(
                Route(f"{start}{path}", PostEndpoint(self._check_language_model, endpoints.openai))
                for path in PATHS
                for start in ("", PREFIX)
            ),
        ]
        for model in (VERSION, MODEL):
            routes += [
                Route(model, self._metadata),
                Route(f"{model}/ready", self._ready),
                self._post(f"{model}/infer", endpoints.infer),
                self._post(f"{model}/generate", endpoints.generate),
                self._post(f"{model}/generate_stream", endpoints.generate_stream),
            ]
        for model in (VERSION_V1, MODEL_V1):
            routes += [self._post(f"{model}:predict", endpoints.predict), Route(model, self._ready)]
        return routes

    def _post(self, path: str, endpoint: ASGIApp) -> Route:
        return Route(path, PostEndpoint(self._check, endpoint))

    async def _root(self, _: Request) -> Response:
        """Return the name of the model and its paths."""
        paths = {**model_paths(self._name), "invocations": INVOCATIONS}
        paths |= {path.removeprefix(f"{PREFIX}/v1/"): path for path in self._openai_paths()}
        return json_response({"name": self._name, "paths": paths})

    async def _no_post(self, _: Request) -> Response:
        """Refuse a POST to the root, as from a broker that has only the address of the model."""
        raise HTTPException(
            405,
            f"/ accepts only GET and HEAD: send requests and events to /v2/models/{self._name}/infer, "
            "for a Trigger with subscriber.uri",
            headers={"Allow": "GET, HEAD"},
        )

    async def _names(self, _: Request) -> Response:
        """Return the list of models in KServe's form, with OpenAI's members for a language model."""
        names = self._language_models()
        return json_response({"models": [self._name], **(model_list(names) if names else {})})

    async def _openai_models(self, _: Request) -> Response:
        return json_response(model_list(self._language_models()))

    async def _openai_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._language_models():
            raise ModelNotFound(f"the model {name!r} is not served here: GET {PREFIX}/v1/models lists the models")
        return json_response(model_entry(name))

    def _language_models(self) -> list[str]:
        """Return the names of the model and its adapters; none unless it is a language model that is loaded."""
        upstream = self._upstream()
        return [] if upstream is None else model_names(self._name, upstream.adapters.names)

    def _openai_paths(self) -> list[str]:
        """Return the paths of OpenAI's and Anthropic's APIs that the model has."""
        upstream = self._upstream()
        return [] if upstream is None else [f"{PREFIX}{path}" for path in PATHS if path in upstream.paths]

    def _check_language_model(self, _: dict[str, Any]) -> None:
        if self._lifecycle.has_model and self._upstream() is None:
            raise ResourceNotFound(NO_PATH)

    def _upstream(self) -> RemoteEngine | None:
        return upstream_of(self._lifecycle.model().engine) if self._lifecycle.has_model else None

    async def _document(self, _: Request) -> Response:
        from clusters.base.distribution import VERSION as version  # slow import: reads the metadata of the distribution
        from serving.modelserver.endpoints.openapi import openapi_document  # rarely needed

        model = self._lifecycle.model()
        paths = self._openai_paths()
        return json_response(
            openapi_document(model.name, model.revision, model.signature, version, model.example, paths)
        )

    async def _metadata(self, request: Request) -> Response:
        self._check(request.path_params)
        model = self._lifecycle.model()
        signature = model.signature
        return json_response(
            {
                "name": model.name,
                "versions": list(model.versions),
                "platform": signature.platform,
                "inputs": _tensor_metadata(signature.inputs),
                "outputs": _tensor_metadata(signature.outputs),
            }
        )

    async def _ready(self, request: Request) -> Response:
        self._check(request.path_params)
        return _readiness(self._lifecycle, {"name": self._name})

    def _check(self, params: dict[str, Any]) -> None:
        """Raise ResourceNotFound for an unknown model or version."""
        check_model(self._name, self._revision, params["name"], params.get("version", ""))


class PostEndpoint:
    """An ASGI endpoint that checks the path, then the method POST.

    A Route with methods=["POST"] would let a GET of `m:predict` match the route of a model's name.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None], app: ASGIApp) -> None:
        self._check = check
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check(scope["path_params"])
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        await self._app(scope, receive, send)


def make_app(routes: Sequence[BaseRoute], no_path: str = "no such path") -> Starlette:
    """Return an application whose errors are `{"error": "…"}`, below `/openai` those of OpenAI.

    `no_path` is the message for unknown paths.
    """

    async def on_http_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        allowed = (error.headers or {}).get("Allow", "")
        wrong_method = f"method {request.method} is not allowed here: use {allowed}"
        has_reason = error.detail != HTTPStatus(error.status_code).phrase
        message = error.detail if has_reason else {404: no_path, 405: wrong_method}.get(error.status_code, error.detail)
        headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
        return _error_response(error.status_code, _error_body(request, error.status_code, message), headers)

    async def on_serving_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, ServingError):
            raise error
        body = openai_error(error) if _is_openai(request) else error_body(str(error))
        return _error_response(error.status, body, error.headers)

    async def on_failure(request: Request, _: Exception) -> Response:
        """Return a response without details; Starlette raises the error again, which logs it."""
        return _error_response(ServingError.status, _error_body(request, ServingError.status, INTERNAL_ERROR), [])

    handlers = {HTTPException: on_http_error, ServingError: on_serving_error, Exception: on_failure}
    app = Starlette(routes=routes, exception_handlers=handlers)
    # no redirects: clients do not repeat a POST, and the target would contain the Host of the request
    app.router.redirect_slashes = False
    return app


def health_routes(lifecycle: ModelLifecycle) -> list[BaseRoute]:
    """Return the routes `/v2/health/live` and `/v2/health/ready`."""

    async def live(_: Request) -> Response:
        if lifecycle.live:
            return json_response({"live": True})
        return json_response({"live": False, "error": lifecycle.reason}, NotReady.status)

    async def ready(_: Request) -> Response:
        return _readiness(lifecycle, {})

    return [Route("/v2/health/live", live), Route("/v2/health/ready", ready)]


def mlflow_routes(lifecycle: ModelLifecycle) -> list[BaseRoute]:
    """Return the routes `/ping`, `/health` and `/version` of MLflow's server, which SageMaker reads too."""

    async def ping(_: Request) -> Response:
        return Response("\n", media_type=JSON.decode()) if lifecycle.ready else _readiness(lifecycle, {})

    async def version(_: Request) -> Response:
        from clusters.base.distribution import VERSION as version  # slow import: reads the metadata of the distribution

        return Response(version, media_type="text/plain")

    return [Route("/ping", ping), Route("/health", ping), Route("/version", version)]


def model_paths(name: str) -> dict[str, str]:
    """Return the paths of a model on its server, by purpose."""
    v1, v2 = f"/v1/models/{name}", f"/v2/models/{name}"
    return {
        "metadata": v2,
        "ready": f"{v2}/ready",
        "infer": f"{v2}/infer",
        "generate": f"{v2}/generate",
        "predict": f"{v1}:predict",
        "openapi": "/openapi.json",
    }


def server_routes(extensions: Sequence[str] = EXTENSIONS, paths: Sequence[str] = ("/v2", "/v2/")) -> list[BaseRoute]:
    """Return the routes of the server metadata, which lists `extensions`."""

    async def server(_: Request) -> Response:
        from clusters.base.distribution import VERSION as version  # slow import: reads the metadata of the distribution

        return json_response({"name": SERVER_NAME, "version": version, "extensions": extensions})

    return [Route(path, server) for path in paths]


def json_response(content: Any, status: int = 200) -> Response:
    """Return a response with `content` as JSON."""
    return Response(json_body(content), status, media_type=JSON.decode())


def _readiness(lifecycle: ModelLifecycle, about: dict[str, Any]) -> Response:
    if lifecycle.ready:
        return json_response({**about, "ready": True})
    response = json_response({**about, "ready": False, "error": lifecycle.reason}, NotReady.status)
    response.headers["retry-after"] = str(NotReady.retry_after)
    return response


def _tensor_metadata(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Return the tensors of the protocol's metadata; names of columns are in `parameters`, which MLServer has too."""
    return [
        {"name": spec.name, "datatype": spec.datatype, "shape": metadata_shape(spec)}
        | ({"parameters": {"columns": spec.columns}} if spec.columns else {})
        for spec in specs
    ]


def _is_openai(request: Request) -> bool:
    """Return whether the path is only of OpenAI's API. Without the prefix, `/v1` is KServe's too."""
    return request.url.path.startswith(f"{PREFIX}/")


def _error_body(request: Request, status: int, message: str) -> bytes:
    return openai_error_body(status, message) if _is_openai(request) else error_body(message)


def _error_response(status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> Response:
    response = Response(body, status, media_type=JSON.decode())
    response.raw_headers.extend(headers)
    return response
