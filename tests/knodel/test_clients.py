"""Both clients on a real platform: the life of a model from its first deploy to its deletion."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import knodel
from tests.platform.machine import Machine

X = np.arange(10, dtype=np.float32)


def test_a_model_from_its_deploy_to_its_deletion(client: knodel.Client, platform: Machine) -> None:
    model = client.deploy(platform.artifact("double"), "life", version="one", min_replicas=1)
    assert (model.ready, model.version, model.newest) == (True, "one", "life-00001")
    assert model.url == f"http://127.0.0.1:{platform.port}/namespaces/default/models/life"
    assert client.get("life") == model
    assert client.models()["life"].name == "life"
    assert client.wait("life").replicas.ready == 1
    assert client.predict("life", [1.0, 2.0])["y"].tolist() == [2.0, 4.0]
    with pytest.raises(knodel.KnodelError, match=r"had all the traffic: choose one with to=REVISION$"):
        client.rollback("life")

    second = client.deploy(platform.artifact("triple"), "life", version="two", canary=10)
    assert second.traffic["life-00002"] == 10
    split = client.traffic("life", {"one": 50, "latest": 50})
    assert [(target.revision, target.percent) for target in split] == [("life-00001", 50), ("life-00002", 50)]
    assert client.promote("life").traffic["life-00002"] == 100
    assert client.predict("life", [1.0]).revision == "life-00002"
    assert client.rollback("life", to="one").traffic["life-00001"] == 100
    assert [one.version for one in client.history("life")] == ["one", "two", "one"]

    explained = client.explain("life")
    assert explained.rule.startswith("pinned by spec.traffic")
    assert explained.model.traffic["life-00001"] == 100
    assert "Promoted" in {event.reason for event in client.events("life")}
    lines = list(client.logs("life", revision="two"))
    assert any("serving model=life revision=life-00002" in line.text for line in lines)
    assert client.delete("life") is None
    with pytest.raises(knodel.NotFound):
        client.get("life")


async def test_the_same_with_the_asynchronous_client(platform: Machine) -> None:
    async with knodel.AsyncClient(state=platform.state) as client:
        await client.deploy(platform.artifact("double"), "later", min_replicas=1)
        assert (await client.predict("later", X)).to_numpy().tolist() == (2 * X).tolist()
        await client.deploy(platform.artifact("triple"), "later", rollout=True, wait=False)
        seen = []
        async for step in client.rollout("later", timeout=60):
            seen.append(step)
            if step.percent and not any(earlier.percent for earlier in seen[:-1]):  # once: later changes may wait
                await asyncio.create_task(client.abort("later"))
        assert seen[0].candidate == "later-00002"
        assert (seen[-1].phase, seen[-1].percent, seen[-1].ended) == ("RolledBack", 0, True)
        assert [line.replica async for line in client.logs("later", tail=1)]
        await client.delete("later")
        assert "later" not in [model.name for model in await client.models()]


def test_a_followed_log_ends_with_the_model(client: knodel.Client, platform: Machine) -> None:
    client.deploy(platform.artifact("double"), "followed", min_replicas=1)
    lines = client.logs("followed", follow=True)
    assert "management at" in next(lines).text
    client.delete("followed", wait=False)
    assert [line.replica.startswith("followed-00001") for line in lines]


def test_a_follower_may_stop_at_any_time(client: knodel.Client) -> None:
    lines = client.logs("double", follow=True)
    next(lines)
    lines.close()  # type: ignore[attr-defined]  # it is a generator


def test_data_of_many_kinds_has_the_same_result(client: knodel.Client) -> None:
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
    for data in ([1, 2], (1.0, 2.0), np.array([1, 2]), {"x": [1, 2]}, pd.DataFrame({"x": [1, 2]}), request):
        answer = client.predict("double", data)
        assert answer["y"].tolist() == [2.0, 4.0]
    assert answer.to_pandas()["y"].tolist() == [2.0, 4.0]
    assert len(answer.recent) >= 6


def test_large_data_is_sent_in_parts_and_joined_in_order(client: knodel.Client) -> None:
    answer = client.predict("double", X, batch_size=3, parallel=2)
    assert answer["y"].tolist() == (2 * X).tolist()
    assert answer.outputs[0].shape == (10,)


def test_requests_have_ids_and_outputs_are_chosen(client: knodel.Client) -> None:
    answer = client.predict("double", [1.0], outputs=["y"], request_id="r-1")
    assert (answer.request_id, list(answer)) == ("r-1", ["y"])
    with pytest.raises(knodel.ModelError, match="has no output 'z': use 'y'") as refused:
        client.predict("double", [1.0], outputs=["z"])
    assert refused.value.status == 400


def test_without_numpy_lists_are_sent_as_json(client: knodel.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    answer = client.predict("double", [1, 2.5], batch_size=1)
    assert answer["y"] == [2.0, 5.0]
    with pytest.raises(knodel.Invalid, match=r"input 'x' has values that FP32 cannot hold; its inputs: x FP32 \[-1\]"):
        client.predict("double", ["a"])
    with pytest.raises(knodel.Invalid, match="there is no row: give at least one"):
        client.predict("double", [], batch_size=1)


@pytest.mark.parametrize(("data", "message"), [
    ({"z": [1]}, r"'x' is missing, 'z' is unknown.*its inputs: x FP32 \[-1\]"),
    ([[1, 2]], r"input 'x' has shape \[1, 2\]: the model expects \[-1\]"),
    (["a"], "input 'x' has values that are not numbers: the model expects FP32"),
    ([[1], [1, 2]], "input 'x' has rows of different lengths"),
    (pd.DataFrame({"age": [1], "city": [2]}), r"input 'x' has shape \[1, 2\]"),
])  # fmt: skip
def test_data_that_does_not_fit_is_refused_before_it_is_sent(client: knodel.Client, data: object, message: str) -> None:
    with pytest.raises(knodel.Invalid, match=f"the data does not fit model double: {message}"):
        client.predict("double", data)


def test_what_does_not_exist_is_not_found(client: knodel.Client) -> None:
    for call in (client.get, client.history, client.explain, client.promote, client.delete, client.wait, client.events):
        with pytest.raises(knodel.NotFound, match="nobody"):
            call("nobody")
    with pytest.raises(knodel.NotFound, match="model nobody not found in namespace default") as missing:
        client.predict("nobody", [1.0])
    assert missing.value.status == 404
    with pytest.raises(knodel.NotFound, match="model double has no version with the tag blue: its tags are none"):
        client.predict("double", [1.0], tag="blue")
    with pytest.raises(knodel.NotFound, match="model double has no rollout"):
        next(client.rollout("double"))
    with pytest.raises(knodel.NotFound, match="namespace nowhere not found"):
        knodel.Client(state=platform_of(client), namespace="nowhere").deploy("https://m/x.onnx", "m", wait=False)


def platform_of(client: knodel.Client) -> Path:
    assert client.core.ref is not None
    return client.core.ref.state


def test_a_model_that_does_not_chat_is_named(client: knodel.Client) -> None:
    with pytest.raises(knodel.NotFound, match="it does not chat; `knodel predict double --example"):
        client.chat("double", "hi")
    with pytest.raises(knodel.NotFound, match="model nobody not found in namespace default"):
        next(client.chat("nobody", "hi", stream=True))


def test_a_changed_model_gets_its_new_inputs(client: knodel.Client, platform: Machine) -> None:
    client.deploy(platform.artifact("double"), "turning", min_replicas=1)
    client.predict("turning", [1.0])
    client.deploy(platform.artifact("triple"), "turning")
    assert client.predict("turning", [1.0])["y"].tolist() == [3.0]
    assert client.core.metadata["turning", ""].is_stale
    assert client.predict("turning", [1.0])["y"].tolist() == [3.0]
    assert client.core.metadata["turning", ""].revisions == {"turning-00001", "turning-00002"}
    client.delete("turning", wait=False)


def test_urls_are_for_inference_only(platform: Machine) -> None:
    for url in (
        f"http://127.0.0.1:{platform.port}",
        f"http://127.0.0.1:{platform.port}/namespaces/default/models/double",
    ):
        with knodel.Client(url, api_key="k") as client:
            assert client.predict("double", [1.0])["y"].tolist() == [2.0]
            with pytest.raises(knodel.Invalid, match="only sends inference requests: use knodel"):
                client.deploy("https://m/x.onnx", "m")
            with pytest.raises(knodel.NotFound, match="has no model nobody in namespace default"):
                client.predict("nobody", [1.0])


def test_threads_share_a_client(client: knodel.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda value: client.predict("double", [value])["y"][0], range(40)))
    assert answers == [2.0 * value for value in range(40)]


def test_a_forked_process_uses_connections_of_its_own(client: knodel.Client) -> None:
    client.predict("double", [1.0])
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if client.predict("double", [2.0])["y"].tolist() == [4.0] and len(client.models()) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert client.predict("double", [3.0])["y"].tolist() == [6.0]


def test_an_event_of_a_training_makes_a_version(client: knodel.Client, platform: Machine) -> None:
    key = platform.run("events", "allow", "/training/double", "--models", "double", "--storage-prefix", "file:///")
    secret = next(word for word in key.split() if word.startswith("whsec_"))
    event = client.emit_training_completed(
        "double", Path(platform.artifact("triple")), version="9", metrics={"accuracy": 0.9}, secret=secret, wait=0,
    )  # fmt: skip
    assert event
    with pytest.raises(knodel.NotEmitted, match=r"answered 40\d"):
        client.emit_training_completed("double", "s3://other/x", secret="whsec_" + "A" * 32, wait=0)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"state": "/s", "kube_context": "c"}, "state and kube_context select different platforms"),
    ({"url": "ftp://h"}, "ftp://h is not an http:// or https:// URL"),
    ({"url": 5}, "5 is not an http:// or https:// URL"),
    ({"url": "http://h/?key=1"}, "the URL has a query or a fragment"),
    ({"url": "http://h", "api_key": 5}, "api_key is not a text of printable ASCII"),
    ({"url": "http://h", "env": "e"}, "a URL and a platform are given"),
    ({"env": "nowhere"}, "there is no environment 'nowhere'"),
    ({"api_key": "k"}, "api_key is for the URL of models: give url as well"),
    ({"namespace": "No"}, "namespace: "),
    ({"retries": "3"}, "retries is '3': give a number, such as 3"),
    ({"http_client": 3}, "http_client is a int: give a client of httpx2 or httpx"),
])  # fmt: skip
def test_contradictory_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(knodel.Invalid, match=message):
        knodel.Client(**arguments)  # type: ignore[arg-type]


def test_without_a_platform_the_first_call_names_the_remedy(tmp_path: Path) -> None:
    remedy = f"start one with `knodel up --detach --state {tmp_path}`$"
    with pytest.raises(knodel.KnodelError, match=f"no platform runs on {tmp_path}: {remedy}"):
        knodel.Client(state=tmp_path).models()

    async def ask() -> None:
        async with knodel.AsyncClient(state=tmp_path) as client:
            await client.models()

    with pytest.raises(knodel.KnodelError, match=remedy):
        asyncio.run(ask())


def test_advised_commands_are_for_the_platform_and_the_namespace_of_the_client(platform: Machine) -> None:
    client = knodel.Client(state=platform.state, namespace="nowhere")
    with pytest.raises(knodel.NotFound, match=f"`knodel namespace nowhere --state {platform.state}` creates it$"):
        client.deploy(platform.artifact("double"), "m", wait=False)
    with pytest.raises(knodel.KnodelError, match=f"`knodel list -A --state {platform.state}` lists all"):
        client.predict("m", [1.0])


@pytest.mark.parametrize(("call", "message"), [
    (lambda client: client.predict("Double", [1]), "name: "),
    (lambda client: client.predict("double", [1], batch_size=0), "batch_size is 0: give a number of rows"),
    (lambda client: client.predict("double", [1], parallel=0), "parallel is 0"),
    (lambda client: client.predict("double", [1], outputs="y"), r"outputs is a text: give a list .* such as \['y'\]"),
    (lambda client: client.predict("double", [1], parameters="a"), "parameters is a str: give a dict"),
    (lambda client: client.predict("double", [1], parameters={"a": X}), "the request is not JSON .*ndarray"),
    (lambda client: client.predict("double", [10**400]), "input 'x' has a number outside the range of FP32"),
    (lambda client: client.predict("double", [1], timeout=-1), "timeout is -1: give a number of seconds"),
    (lambda client: client.traffic("double", {"latest": "all"}), "the split is not a dict of percentages"),
    (lambda client: client.traffic("double", {"latest": 90}), "the percents sum to 90: they must sum to 100"),
    (lambda client: client.deploy("./none.onnx", "m"), "none.onnx"),
    (lambda client: client.deploy("https://m/x.onnx", "m", rollout={"steps": {1}}), "a field is not JSON .*set"),
    (lambda client: client.predict("double", [1], timeout=1e300), "timeout is 1e\\+300: give a number of seconds"),
    (lambda client: client.deploy(None, "double"), "no change to model double is given"),
    (lambda client: client.deploy("https://m/x.gguf", "m", llm="4096"), "llm is '4096': give a dict of fields"),
    (lambda client: client.deploy("https://m/x.gguf", "m", llm={"contextLength": "9"}, wait=False),
     "spec.llm.contextLength: must be a whole number"),
    (lambda client: client.deploy("https://m/x.onnx", "m", rollout=True, canary=5), "exclude each other"),
    (lambda client: client.deploy("https://m/x.onnx", "m", example=[1]), "an example is only for an object in memory"),
    (lambda client: client.deploy(object(), "m"), "object"),
    (lambda client: next(client.logs("double", follow=True, previous=True)), "omit either"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_the_remedy(client: knodel.Client, call: object, message: str) -> None:
    with pytest.raises(knodel.KnodelError, match=message):
        call(client)  # type: ignore[operator]


def test_a_client_outlives_its_platform(platform: Machine) -> None:
    with knodel.Client(state=platform.state, retries=0) as client:
        client.deploy(platform.artifact("double"), "lasting", min_replicas=1)
        assert client.predict("lasting", [1.0])["y"].tolist() == [2.0]
        platform.run("down")
        with pytest.raises(knodel.KnodelError, match="no platform runs"):
            client.models()
        with pytest.raises(knodel.KnodelError, match="does not respond") as gone:
            client.predict("lasting", [1.0])
        assert "may have run" not in str(gone.value)
        platform.up()
        assert client.wait("lasting").ready
        assert client.predict("lasting", [1.0])["y"].tolist() == [2.0]
