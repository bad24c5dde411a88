"""The data port of a server of many models: routes a request by the model's name in its path, or in its body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.modelserver.base.errors import ResourceNotFound
from serving.modelserver.base.responses import send_error
from serving.modelserver.endpoints.app import (
    NO_PATH,
    PostEndpoint,
    health_routes,
    json_response,
    make_app,
    model_paths,
    server_routes,
)
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.target import unknown_model
from serving.modelserver.models.selection import SELECTED_PATHS
from serving.modelserver.openai.errors import ModelNotFound
from serving.modelserver.openai.listing import model_entry, model_list
from serving.modelserver.openai.paths import PREFIX

DOCUMENT: Final = "/openapi.json"
_MODELS: Final = "models"
_V1: Final = "v1"
_PROTOCOLS: Final = (_V1, "v2")
_NAME_AT: Final = 3  # part of a path: "", the protocol, "models", the name


class ModelRouter:
    """ASGI application that routes to `models`, by name; `lifecycle` is the server's.

    `selected` answers OpenAI's paths. `language_models` returns the names of the loaded ones and of their adapters.
    """

    def __init__(
        self, models: Mapping[str, ASGIApp], lifecycle: ModelLifecycle, selected: ASGIApp,
        language_models: Callable[[], Sequence[str]],
    ) -> None:  # fmt: skip
        self._models = models
        self._selected = selected

        async def names(_: Request) -> Response:
            found = language_models()
            return json_response({"models": list(models), **(model_list(found) if found else {})})

        async def openai_models(_: Request) -> Response:
            return json_response(model_list(language_models()))

        async def openai_model(request: Request) -> Response:
            name = request.path_params["name"]
            if name not in language_models():
                raise ModelNotFound(f"no language model {name!r} is loaded: GET {PREFIX}/v1/models lists them")
            return json_response(model_entry(name))

        async def base(_: Request) -> Response:
            paths = {**model_paths("NAME"), "openapi": f"{DOCUMENT}?model=NAME"}
            return json_response({"models": list(models), "paths": paths})

        own = [
            Route("/", base),
            Route("/v1/models", names),
            Route(f"{PREFIX}/v1/models", openai_models),
            Route(f"{PREFIX}/v1/models/{{name}}", openai_model),
            *(Route(path, PostEndpoint(lambda _: None, selected)) for path in SELECTED_PATHS),
        ]
        self._server = make_app([*health_routes(lifecycle), *server_routes(), *own], NO_PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] == "POST" and scope["path"] in SELECTED_PATHS:
            await self._selected(scope, receive, send)
            return
        name = name_in(scope["path"])
        if name is None and scope["path"] == DOCUMENT:
            name = parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])[0]
            if not name:
                await send_error(send, ResourceNotFound(f"each model has its own document: {DOCUMENT}?model=NAME"))
                return
        if name is None:
            await self._server(scope, receive, send)
            return
        model = self._models.get(name)
        if model is None:
            await send_error(send, unknown_model(name))
        else:
            await model(scope, receive, send)


def name_in(path: str) -> str | None:
    """Return the model name in a path; None for a path of the server itself."""
    parts = path.split("/", _NAME_AT + 1)
    if len(parts) <= _NAME_AT or parts[1] not in _PROTOCOLS or parts[2] != _MODELS:
        return None
    name = parts[_NAME_AT]
    return name.partition(":")[0] if parts[1] == _V1 else name  # NAME:predict
