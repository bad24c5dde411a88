"""The endpoints of one model's inferences, a protocol each, and what they share. Composes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.types import ASGIApp

from serving.server.event_gate import EventGate
from serving.server.infer import Infer
from serving.server.inference import Inference
from serving.server.lifecycle import ServedModel
from serving.server.limits import BodyBudget
from serving.server.protocol_generate import ProtocolGenerate
from serving.server.protocol_v1 import ProtocolV1
from serving.server.sse import TAKEN_WITHIN, Stream, Streamable


@dataclass(frozen=True, slots=True)
class Endpoints:
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
    taken_within: float = TAKEN_WITHIN,
) -> Endpoints:
    """Of the model `name`; `now` gives the time of events, `taken_within` is as of `Stream`."""

    def events(app: ASGIApp) -> ASGIApp:
        from serving.server.cloud_events import CloudEvents  # when the first one comes

        return CloudEvents(app, inference, budget, name, now)

    predict = Streamable(Infer(inference, budget, _v1), Stream(inference, budget, _v1, taken_within))
    return Endpoints(
        infer=EventGate(Infer(inference, budget), events),
        predict=EventGate(predict, events),
        generate=Infer(inference, budget, _generate),
        generate_stream=Stream(inference, budget, _generate, taken_within),
    )


def _v1(model: ServedModel) -> ProtocolV1:
    return ProtocolV1(model.codec)


def _generate(model: ServedModel) -> ProtocolGenerate:
    return ProtocolGenerate(model.codec)
