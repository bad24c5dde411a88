"""Language models: a chat that goes on after zero, a split between two versions, a canary judged on its first token."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from clusters.base.objects import POD, Object, name_of
from serving.reconciler.rollout.state import rollout_of
from tests.scenarios.answers import Answer
from tests.scenarios.steady import steadily
from tests.scenarios.world import World

pytestmark = pytest.mark.timeout(400)

CHAT = "/openai/v1/chat/completions"
SPEC: dict[str, Any] = {
    "modelFormat": "gguf", "containerConcurrency": 4, "resources": {"cpu": "500m", "memory": "1Gi"}
}  # fmt: skip
JUDGED: dict[str, Any] = {"steps": [50, 100], "stepDuration": "3s", "judge": {"interval": "1s", "maxLatencyRatio": 2}}
PROMPT = "a " * 60


def chat(name: str, messages: list[Object], stream: bool = False, word: str = "yes") -> Object:
    """A request whose answer is one word."""
    return {"model": name, "messages": messages, "stream": stream, "grammar": f'root ::= "{word}"'}


def user(text: str) -> Object:
    return {"role": "user", "content": text}


async def send(world: World, name: str, body: Object) -> Answer:
    return await world.send("POST", CHAT, {"Host": world.host(name)}, body)


def text_of(answer: Answer) -> str:
    """The text of an answer, streamed or whole."""
    if isinstance(answer.body, dict):
        return str(answer.body["choices"][0]["message"]["content"])
    events = [line[6:] for line in answer.body.decode().split("\n") if line.startswith("data: {")]
    return "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events)


async def test_a_chat_goes_on_after_zero(world: World) -> None:
    await world.deploy("talk", storageUri=world.artifacts("chat"), scaleToZeroAfter="6s", **SPEC)
    first = await send(world, "talk", chat("talk", [user("hi")], stream=True))
    assert (first.status, text_of(first)) == (200, "yes"), first.body

    async def at_zero() -> bool:
        pods = (await world.cluster.list(POD, world.namespace)).items
        return not any(name_of(pod).startswith("talk-0") for pod in pods)

    await world.eventually(at_zero, 120.0)
    turns = [user("hi"), {"role": "assistant", "content": "yes"}, user("and now?")]
    second = await send(world, "talk", chat("talk", turns, stream=True, word="no"))
    assert (second.status, text_of(second)) == (200, "no"), second.body
    wrong = await send(world, "talk", chat("other", [user("hi")]))
    assert (wrong.status, wrong.body["error"]["code"]) == (404, "model_not_found")


async def test_a_split_between_two_versions_and_back(world: World) -> None:
    spec = {**SPEC, "minReplicas": 1}
    await world.deploy("divided", storageUri=world.artifacts("chat"), **spec)
    shares = [{"revision": "divided-00001", "percent": 90}, {"latest": True, "percent": 10}]
    await world.deploy("divided", storageUri=world.artifacts("chat-again"), traffic=shares)
    await world.carries("divided", {"divided-00001": 90, "divided-00002": 10})

    async def answers(count: int) -> Counter[str]:
        found = [await send(world, "divided", chat("divided", [user("hi")], stream=True)) for _ in range(count)]
        assert {(answer.status, text_of(answer)) for answer in found} == {(200, "yes")}
        return Counter(answer.revision for answer in found)

    seen = await answers(120)
    assert 0 < seen["divided-00002"] < 40
    await world.deploy("divided", traffic=[{"revision": "divided-00001", "percent": 100}])
    await world.carries("divided", {"divided-00001": 100})
    assert set(await answers(30)) == {"divided-00001"}


async def test_a_version_with_a_slower_first_token_is_rolled_back(world: World) -> None:
    spec = {**SPEC, "minReplicas": 1, "llm": {"contextLength": 256}}
    await world.deploy("first", storageUri=world.artifacts("chat"), rollout=JUDGED, **spec)

    async def ask() -> Answer:
        return await send(world, "first", chat("first", [user(PROMPT)], stream=True))

    def ended(found: Object) -> bool:
        state = rollout_of(found)
        return state is not None and not state.runs

    async with steadily(ask, 20.0) as load:
        await world.deploy("first", storageUri=world.artifacts("chat-slow"), wait=False)
        state = rollout_of(await world.until("first", ended, within=180.0))
    assert state is not None
    assert state.phase == "RolledBack", state
    slower = ("slower than", "time between tokens")
    assert any(words in reason for reason in state.reasons for words in slower), state.reasons
    assert (load.failures, load.broken) == ([], [])
    assert {text_of(answer) for answer in load.answers} == {"yes"}
    await world.carries("first", {"first-00001": 100})
