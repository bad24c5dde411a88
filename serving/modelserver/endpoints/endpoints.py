"""The endpoints of one model's inferences, a protocol each, and what they share. Composes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from starlette.types import ASGIApp

from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.codec.content_router import ContentRouter
from serving.modelserver.codec.protocol_generate import GenerateCodec
from serving.modelserver.codec.protocol_v1 import V1Codec
from serving.modelserver.endpoints.infer import V2, CodecOf, UnaryEndpoint
from serving.modelserver.endpoints.sse import StreamingEndpoint
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ServedModel


class Endpoints(msgspec.Struct, frozen=True):
    """ASGI applications: `…/infer`, `:predict`, `…/generate` and `…/generate_stream`."""

    infer: ASGIApp
    predict: ASGIApp
    generate: ASGIApp
    generate_stream: ASGIApp


def make_endpoints(
    name: str,
    inference: Inference,
    budget: BodyBudget,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Endpoints:
    """Of the model `name`; `now` gives the time of events."""

    def events(app: ASGIApp) -> ASGIApp:
        from serving.modelserver.endpoints.cloud_events import CloudEventEndpoint  # when the first one comes

        return CloudEventEndpoint(app, inference, budget, name, now)

    def gated(dialect_of: CodecOf) -> ASGIApp:
        return ContentRouter(
            UnaryEndpoint(inference, budget, dialect_of), StreamingEndpoint(inference, budget, dialect_of), events
        )

    return Endpoints(
        infer=gated(V2),
        predict=gated(_v1),
        generate=gated(_generate),
        generate_stream=StreamingEndpoint(inference, budget, _generate),
    )


def _v1(model: ServedModel) -> V1Codec:
    return V1Codec(model.codec)


def _generate(model: ServedModel) -> GenerateCodec:
    return GenerateCodec(model.codec)
