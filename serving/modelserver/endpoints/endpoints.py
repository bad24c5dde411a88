"""Compose the inference endpoints of one model, one for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.codec.content_router import ContentRouter
from serving.modelserver.codec.protocol_generate import GenerateCodec
from serving.modelserver.codec.protocol_v1 import V1Codec
from serving.modelserver.endpoints.infer import V2, CodecOf, UnaryEndpoint
from serving.modelserver.endpoints.pipelines import pipeline_routes
from serving.modelserver.endpoints.sse import StreamingEndpoint
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.openai.metrics import LlmMetrics


class Endpoints(msgspec.Struct, frozen=True):
    """ASGI applications for `…/infer`, `…:predict`, `…/generate`, `…/generate_stream`, `/invocations` and OpenAI's.

    `pipelines` are the endpoints of OpenAI's API that infer in this server, by path. `application` takes all paths of a
    model that has its own.
    """

    infer: ASGIApp
    predict: ASGIApp
    generate: ASGIApp
    generate_stream: ASGIApp
    invocations: ASGIApp
    openai: ASGIApp
    application: ASGIApp
    pipelines: Mapping[str, ASGIApp] = {}


def make_endpoints(
    name: str,
    inference: Inference,
    budget: BodyBudget,
    llm: LlmMetrics | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Endpoints:
    """Return the endpoints of the model `name`; `now` returns the time of CloudEvents in responses."""

    def events(app: ASGIApp) -> ASGIApp:
        from serving.modelserver.endpoints.cloud_events import CloudEventEndpoint  # imported with the first event

        return CloudEventEndpoint(app, inference, budget, name, now)

    def routed(codec_of: CodecOf) -> ASGIApp:
        return ContentRouter(
            UnaryEndpoint(inference, budget, codec_of), StreamingEndpoint(inference, budget, codec_of), events
        )

    def make_invocations() -> ASGIApp:
        from serving.modelserver.endpoints.invocations import InvocationsEndpoint  # with the first such request

        return InvocationsEndpoint(inference, budget)

    def make_openai() -> ASGIApp:
        from serving.modelserver.openai.endpoint import OpenAiEndpoint  # with the first such request

        return OpenAiEndpoint(name, inference, budget, llm or LlmMetrics())

    def make_application() -> ASGIApp:
        from serving.modelserver.openai.application import ApplicationEndpoint  # with the first such request

        return ApplicationEndpoint(inference, budget)

    openai = _made_later(make_openai)
    return Endpoints(
        infer=routed(V2),
        predict=routed(lambda model: V1Codec(model.codec)),
        generate=routed(_generate),
        generate_stream=StreamingEndpoint(inference, budget, _generate),
        invocations=_made_later(make_invocations),
        openai=openai,
        application=_made_later(make_application),
        pipelines=pipeline_routes(inference, budget, openai),
    )


def _made_later(make: Callable[[], ASGIApp]) -> ASGIApp:
    """Return an application that is made with its first request."""
    made: list[ASGIApp] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not made:
            made.append(make())
        await made[0](scope, receive, send)

    return app


def _generate(model: ServedModel) -> GenerateCodec:
    return GenerateCodec(model.codec)
