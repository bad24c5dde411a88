"""Endpoints of OpenAI's API for models that infer in this server: embeddings, and rerank in the form of Cohere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, send_body
from serving.modelserver.endpoints.infer import CodecOf, UnaryEndpoint
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ServedModel

if TYPE_CHECKING:  # imported with the first request: few models compute embeddings
    from serving.modelserver.openai.embeddings import EmbeddingsCodec
    from serving.modelserver.openai.rerank import RerankCodec

EMBEDDINGS_PATHS: Final = ("/v1/embeddings", "/openai/v1/embeddings")
RERANK_PATHS: Final = ("/v1/rerank", "/v2/rerank", "/openai/v1/rerank")


class OpenAIEndpoint(UnaryEndpoint):
    """An endpoint whose errors have OpenAI's form."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises HTTPException for another method than POST."""
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        await super().__call__(scope, receive, send)

    async def send_error(self, send: Send, error: ServingError) -> None:
        """Send the error in OpenAI's form."""
        from serving.modelserver.openai.errors import openai_error  # as above

        await send_body(send, error.status, openai_error(error, error.status), JSON, error.headers)


def pipeline_routes(inference: Inference, budget: BodyBudget) -> list[Route]:
    """Return the routes of embeddings and rerank."""
    made: tuple[tuple[tuple[str, ...], CodecOf], ...] = (
        (EMBEDDINGS_PATHS, _embeddings),
        (RERANK_PATHS, _rerank),
    )
    return [Route(path, OpenAIEndpoint(inference, budget, codec_of)) for paths, codec_of in made for path in paths]


def _embeddings(model: ServedModel) -> EmbeddingsCodec:
    from serving.modelserver.openai.embeddings import EmbeddingsCodec

    return EmbeddingsCodec(model.codec)


def _rerank(model: ServedModel) -> RerankCodec:
    from serving.modelserver.openai.rerank import RerankCodec

    return RerankCodec(model.codec)
