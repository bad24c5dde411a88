"""OpenAI's and Anthropic's paths of a server of several models, over the stub of an engine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.serving.modelserver.models.conftest import ServeMany, folder, serve_many
from tests.serving.modelserver.openai.test_endpoint import CHAT, chat, stub
from tests.support.huggingface_folders import SIZE, Numbers, embedder, write

__all__ = ["folder", "serve_many", "stub"]


async def test_the_body_selects_one_of_many_models(serve_many: ServeMany, stub: None, folder: Path) -> None:
    (folder / "chat.stub").write_text("legal")
    (folder / "other.stub").write_text(" ")
    files = embedder(Numbers(1))
    write(folder / "vectors", files)
    running = await serve_many()
    for path in (CHAT, "/v1/chat/completions"):
        for name, adapter in (("chat", None), ("chat:legal", "legal"), ("other", None)):
            answer = await running.post(chat(name, max_tokens=2), path)
            assert (answer.status, answer.json["told"]["adapter"]) == (200, adapter)
            assert answer.headers["knodel-revision"] == f"{name.partition(':')[0]}-00001"
    packed = gzip.compress(json.dumps(chat("other", max_tokens=2)).encode())
    answer = await running.post(packed, CHAT, **{"content-encoding": "gzip", "content-type": "application/json"})
    assert answer.json["told"]["model"] == "other"
    found = await running.post({"model": "vectors", "input": "a film"}, "/v1/embeddings")
    assert len(found.json["data"][0]["embedding"]) == SIZE

    names = ["chat", "chat:legal", "other"]
    assert [one["id"] for one in (await running.get("/openai/v1/models")).json["data"]] == names
    listed = (await running.get("/v1/models")).json
    assert listed["models"] == ["chat", "double", "other", "triple", "vectors"] and len(listed["data"]) == len(names)
    assert (await running.get("/openai/v1/models/chat:legal")).json["object"] == "model"
    assert (await running.get("/openai/v1/models/double")).status == 404
    assert (await running.get(CHAT)).status == 405

    await running.manage("/models/other/unload")
    assert [one["id"] for one in (await running.get("/openai/v1/models")).json["data"]] == ["chat", "chat:legal"]
    assert running.server.stats.to_json()["active"] == 0


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        (chat("nosuch"), 404, "model", "'nosuch' is not served here: use chat, double, triple"),
        (chat("No Name"), 404, "model", "no model 'No Name'"),
        (chat("double"), 404, None, "model double does not have /v1/chat/completions"),
        ({"messages": []}, 400, "model", "the body needs the member `model`"),
        (b'{"model": "chat", "model": "double"}', 400, "model", "twice"),
        (b"[", 400, None, "not a JSON object"),
    ],
)
async def test_a_body_that_selects_none_of_many_models_is_refused(
    body: Any, status: int, param: str | None, message: str, serve_many: ServeMany, stub: None, folder: Path
) -> None:
    (folder / "chat.stub").write_text(" ")
    running = await serve_many()
    answer = await running.post(body, CHAT)
    error = answer.json["error"]
    assert (answer.status, error["param"]) == (status, param) and message in error["message"]
    anthropic = await running.post(body, "/v1/messages")
    assert (anthropic.status, anthropic.json["type"]) == (status, "error")
