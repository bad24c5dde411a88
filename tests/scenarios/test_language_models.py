"""Language models: a chat that goes on after zero, a split between two versions, a canary judged on its first token."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from clusters.base.objects import POD, Object, condition_of, name_of, uid_of
from serving.reconciler.rollout.state import rollout_of
from serving.storage.base.digest import of_folder
from serving.storage.base.disk import digest_files
from tests.scenarios.answers import Answer
from tests.scenarios.steady import steadily
from tests.scenarios.world import World
from tests.serving.engines.vllm.test_folder import adapter
from tests.support import vllm_stub
from tests.support.small_llama import write

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


def adapter_entry(folder: Path, name: str) -> Object:
    """Make a LoRA adapter for the stub of vLLM, and return its entry in a Model."""
    made = adapter(folder / name).path
    return {"name": name, "uri": Path(made).as_uri(), "digest": of_folder(digest_files(Path(made), name))}


async def test_adapters_of_vllm_come_and_go_without_a_version_while_requests_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.needs("vllm")
    folder = tmp_path.resolve()
    vllm_stub.install(folder / "bin")
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
    tone, legal = adapter_entry(folder, "tone"), adapter_entry(folder, "legal")
    spec: Any = {"modelFormat": "vllm", "storageUri": write(folder / "llama").as_uri(), "minReplicas": 1}
    await world.deploy("adapted", llm={"adapters": [tone]}, **spec)

    async def ask(model: str) -> Answer:
        return await send(world, "adapted", {"model": model, "messages": [user("hi")]})

    async def answers(model: str, status: int) -> bool:
        return (await ask(model)).status == status

    async def replicas() -> dict[str, str]:
        pods = (await world.cluster.list(POD, world.namespace)).items
        return {name_of(pod): uid_of(pod) for pod in pods if name_of(pod).startswith("adapted-")}

    def adapters_are(status: str) -> Callable[[Object], bool]:
        return lambda found: (condition_of(found, "AdaptersReady") or {}).get("status") == status

    before = await replicas()
    assert (await ask("adapted:tone")).status == 200
    assert (await ask("adapted:legal")).status == 404
    async with steadily(lambda: ask("adapted"), 20.0) as base, steadily(lambda: ask("adapted:tone"), 20.0) as kept:
        await world.deploy("adapted", llm={"adapters": [tone, legal]})
        await world.eventually(lambda: answers("adapted:legal", 200))
        await world.until("adapted", adapters_are("True"))
        bad = {**adapter_entry(folder, "bad"), "digest": "sha256:" + "0" * 64}
        await world.deploy("adapted", llm={"adapters": [tone, legal, bad]})
        found = await world.until("adapted", adapters_are("False"))
        assert (
            'adapted-00001: adapter "bad": cannot be fetched' in (condition_of(found, "AdaptersReady") or {})["message"]
        )
        assert (await ask("adapted:legal")).status == 200
        await world.deploy("adapted", llm={"adapters": [tone]})
        await world.eventually(lambda: answers("adapted:legal", 404))
        await world.until("adapted", adapters_are("True"))
    for load in (base, kept):
        assert (load.failures, load.broken) == ([], [])
        assert len(load.answers) > 20
    assert await replicas() == before
    assert [name_of(one) for one in await world.revisions("adapted")] == ["adapted-00001"]


async def test_a_former_version_keeps_its_adapters(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.needs("vllm")
    folder = tmp_path.resolve()
    vllm_stub.install(folder / "bin")
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
    tone, legal = adapter_entry(folder, "tone"), adapter_entry(folder, "legal")
    spec: Any = {"modelFormat": "vllm", "storageUri": write(folder / "llama").as_uri(), "minReplicas": 1}
    await world.deploy("twice", llm={"adapters": [tone]}, **spec)
    shares = [{"revision": "twice-00001", "percent": 100}, {"latest": True, "percent": 0, "tag": "new"}]
    await world.deploy("twice", llm={"adapters": [legal], "contextLength": 256}, traffic=shares)

    async def statuses() -> dict[str, int]:
        asked = [(host, name) for host in ("twice", "new-twice") for name in ("tone", "legal")]
        messages = [user("hi")]
        return {
            f"{host} {name}": (await send(world, host, {"model": f"twice:{name}", "messages": messages})).status
            for host, name in asked
        }

    wanted = {"twice tone": 200, "twice legal": 404, "new-twice tone": 404, "new-twice legal": 200}

    async def as_wanted() -> bool:
        return await statuses() == wanted

    await world.eventually(as_wanted)
    await world.deploy("twice", llm={"adapters": [legal, tone], "contextLength": 256})
    wanted["new-twice tone"] = 200
    await world.eventually(as_wanted)
    assert len(await world.revisions("twice")) == 2


async def test_one_base_url_serves_all_models_of_the_namespace_to_the_sdks(world: World) -> None:
    for name, artifact in (("left", "chat"), ("right", "chat-again")):
        await world.deploy(name, storageUri=world.artifacts(artifact), minReplicas=1, **SPEC)
    messages: Any = [user("hi")]
    async with openai.AsyncOpenAI(base_url=world.openai, api_key="none", max_retries=5) as client:

        async def listed() -> bool:
            return {"left", "right"} <= {model.id async for model in client.models.list()}

        await world.eventually(listed)
        for name in ("left", "right"):
            word: Any = {"extra_body": {"grammar": f'root ::= "{name}"'}}
            stream = await client.chat.completions.create(model=name, messages=messages, stream=True, **word)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(pieces) == name
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="neither", messages=messages)
    base = world.openai.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=5) as claude:
        message = await claude.messages.create(model="left", max_tokens=4, messages=messages)
        assert message.usage.output_tokens > 0
