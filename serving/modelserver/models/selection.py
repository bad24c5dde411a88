"""OpenAI's and Anthropic's paths of a server of many models: the member `model` of the body selects the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.net.language_models import ModelNotSelected, select
from serving.modelserver.base.errors import ClientLeft, InvalidRequest, ServingError, release_frames
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, send_body
from serving.modelserver.codec.bounded_read import ReplayReceive, read_body
from serving.modelserver.endpoints.pipelines import EMBEDDINGS_PATHS, RERANK_PATHS
from serving.modelserver.openai.errors import InvalidParameter, ModelNotFound, anthropic_error, openai_error
from serving.modelserver.openai.paths import MESSAGES, PATHS, PREFIX

SELECTED_PATHS: Final = frozenset(
    (*(f"{start}{path}" for path in PATHS for start in ("", PREFIX)), *EMBEDDINGS_PATHS, *RERANK_PATHS)
)
"""Paths without the name of a model."""
_CODING: Final = b"content-encoding"


class SelectedModel:
    """The ASGI application of `SELECTED_PATHS`; `limit` is the size of a body in bytes, decompressed."""

    def __init__(self, models: Mapping[str, ASGIApp], budget: BodyBudget, limit: int) -> None:
        self._models = models
        self._budget = budget
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by the model that its body selects."""
        try:
            model, content = await self._select(scope, receive)
        except ServingError as error:
            release_frames(error)
            if not isinstance(error, ClientLeft):
                anthropic = scope["path"].removeprefix(PREFIX).startswith(MESSAGES)
                body = anthropic_error(error) if anthropic else openai_error(error)
                await send_body(send, error.status, body, JSON, error.headers)
            return
        await model(scope, ReplayReceive(content, receive), send)

    async def _select(self, scope: Scope, receive: Receive) -> tuple[ASGIApp, bytes]:
        """Return the model and the body, which is plain from now on. Raises ServingError."""
        body = await read_body(scope, receive, self._budget, self._limit)
        self._budget.give_back(body.lent)  # the model takes it again before other tasks can
        scope["headers"] = [header for header in scope["headers"] if header[0] != _CODING]
        try:
            name = select(body.content).name
        except ModelNotSelected as error:
            if error.status != InvalidRequest.status:
                raise ModelNotFound(str(error)) from error
            raise (InvalidParameter(error.param, str(error)) if error.param else InvalidRequest(str(error))) from error
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"the model {name!r} is not served here: use {', '.join(self._models)}")
        return model, body.content
