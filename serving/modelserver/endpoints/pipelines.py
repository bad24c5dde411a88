"""Endpoints of OpenAI's API for models that infer in this server: embeddings, and rerank in the form of Cohere.

An engine that is a server of its own may have the same paths: such requests are passed on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serving.modelserver.base.errors import NotReady, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, send_body
from serving.modelserver.endpoints.infer import CodecOf, UnaryEndpoint
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.openai.errors import openai_error
from serving.modelserver.openai.paths import PREFIX
from serving.modelserver.openai.upstreams import upstream_of

if TYPE_CHECKING:  # imported with the first request: few models compute embeddings
    from serving.modelserver.openai.embeddings import EmbeddingsCodec
    from serving.modelserver.openai.rerank import RerankCodec

EMBEDDINGS_PATHS: Final = ("/v1/embeddings", f"{PREFIX}/v1/embeddings")
RERANK_PATHS: Final = ("/v1/rerank", f"{PREFIX}/v1/rerank", "/v2/rerank")


class OpenAIEndpoint(UnaryEndpoint):
    """An endpoint whose errors have OpenAI's form; `upstream` serves models whose engines are servers of their own."""

    def __init__(self, inference: Inference, budget: BodyBudget, codec_of: CodecOf, upstream: ASGIApp) -> None:
        super().__init__(inference, budget, codec_of)
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with suppress(NotReady):  # which the response of this class says
            if upstream_of(self._inference.model().engine) is not None:
                await self._upstream(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def send_error(self, send: Send, error: ServingError) -> None:
        """Send the error in OpenAI's form."""
        await send_body(send, error.status, openai_error(error), JSON, error.headers)


def pipeline_routes(inference: Inference, budget: BodyBudget, upstream: ASGIApp) -> dict[str, ASGIApp]:
    """Return the endpoints of embeddings and rerank by path; `upstream` is as in `OpenAIEndpoint`."""
    embeddings = OpenAIEndpoint(inference, budget, _embeddings, upstream)
    rerank = OpenAIEndpoint(inference, budget, _rerank, upstream)
    return {**dict.fromkeys(EMBEDDINGS_PATHS, embeddings), **dict.fromkeys(RERANK_PATHS, rerank)}


def _embeddings(model: ServedModel) -> EmbeddingsCodec:
    from serving.modelserver.openai.embeddings import EmbeddingsCodec

    return EmbeddingsCodec(model.codec)


def _rerank(model: ServedModel) -> RerankCodec:
    from serving.modelserver.openai.rerank import RerankCodec

    return RerankCodec(model.codec)
