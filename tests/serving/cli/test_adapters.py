"""Adapters of a language model in `knodel get`, `describe` and `explain`."""

from __future__ import annotations

import pytest

from clusters.base.objects import MODEL, Object
from serving.cli.texts import adapters_text
from tests.serving.cli.conftest import Served
from tests.serving.models import model_object

ADAPTERS = [{"name": "legal", "uri": "s3://box/legal"}, {"name": "tone", "uri": "s3://box/tone"}]
FAULT = {
    "type": "AdaptersReady",
    "status": "False",
    "reason": "AdapterFailed",
    "message": 'chat-00001: adapter "tone": x',
}


def chat(*conditions: Object) -> Object:
    made = model_object("chat", modelFormat="vllm", llm={"adapters": ADAPTERS})
    return {**made, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (model_object(), ""),
        (chat(), "legal, tone"),
        (chat({**FAULT, "status": "True"}), "legal, tone"),
        (chat(FAULT), 'legal, tone (AdapterFailed: chat-00001: adapter "tone": x)'),
    ],
)
def test_the_text_has_the_names_and_what_is_missing(model: Object, text: str) -> None:
    assert adapters_text(model) == text


@pytest.mark.parametrize("verb", ["get", "describe", "explain"])
async def test_the_verbs_show_them(served: Served, verb: str) -> None:
    stored = await served.cluster.create(MODEL, chat(), manager="test")
    assert stored["metadata"]["name"] == "chat"
    done = await served.knodel(verb, "chat")
    assert done.code == 0, done.err
    assert "legal, tone" in done.out
