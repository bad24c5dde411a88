"""A server of many models: each is served under its name over every protocol, and loaded on its first request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from serving.modelserver.grpc import messages as oip
from tests.serving.modelserver.client import HOST, ask, request, tensor
from tests.serving.modelserver.grpc_parts import asked, begin, floats, infer, refused
from tests.serving.modelserver.models.conftest import SIZE, Many, ServeMany, weighty
from tests.serving.modelserver.pool import infer_of
from tests.support import models
from tests.support.ports import free_port
from tests.support.wait import eventually

ONE_MODEL = str(SIZE + SIZE // 2)
"""A limit in bytes: for one `weighty` model, not for two."""


def weighty_models(folder: Path, count: int) -> None:
    """Replace the models of the folder by `times1`, `times2` …, all of the same size."""
    for path in folder.iterdir():
        path.unlink()
    for number in range(1, count + 1):
        (folder / f"times{number}.onnx").write_bytes(weighty(number))


async def test_each_model_answers_under_its_name_and_with_its_revision(serve_many: ServeMany) -> None:
    running = await serve_many()
    for name, factor in (("double", 2.0), ("triple", 3.0)):
        answer = await running.ask_for(name, 1.0, 5.0)
        assert (answer.status, answer.json["model_name"]) == (200, name)
        assert answer.json["outputs"][0]["data"] == [factor, 5 * factor]
        assert answer.headers["knodel-revision"] == answer.json["model_version"] == f"{name}-00001"
        assert (await running.get(f"/v2/models/{name}")).json["name"] == name
        assert (await running.get(f"/v2/models/{name}/versions/1/ready")).json == {"name": name, "ready": True}
    assert (await running.get("/v1/models")).json == {"models": ["double", "triple"]}
    assert (await running.get("/v2/health/ready")).status == 200


async def test_the_address_of_the_server_answers_its_models_and_their_paths(serve_many: ServeMany) -> None:
    running = await serve_many()
    base = (await running.get("/")).json
    assert base["models"] == ["double", "triple"]
    for purpose in ("metadata", "ready", "openapi"):
        assert (await running.get(base["paths"][purpose].replace("NAME", "triple"))).status == 200


async def test_v1_generate_and_events_go_by_the_name_too(serve_many: ServeMany) -> None:
    running = await serve_many()
    predicted = await running.post({"instances": [4.0]}, "/v1/models/triple:predict")
    assert predicted.json == {"predictions": [12.0]}
    event = {"ce_id": "1", "ce_source": "/test", "ce_type": "t", "ce_specversion": "1.0"}
    answered = await running.ask_for("triple", 2.0, **event, content_type="application/json")
    assert (answered.headers["ce-source"], answered.json["outputs"][0]["data"]) == (
        "io.kserve.inference.triple", [6.0],
    )  # fmt: skip
    document = (await running.get("/openapi.json?model=triple")).json
    assert "/v2/models/triple/infer" in document["paths"]


@pytest.mark.parametrize(
    "path", ["/v2/models/other/infer", "/v2/models//infer", "/v2/models/..%2Ftriple/infer", "/v1/models/other:predict",
             "/v2/models/triple/versions/2/infer", "/v2/models/triple/nothing", "/v2/models", "/nothing"]
)  # fmt: skip
async def test_what_is_not_there_is_404_in_json(serve_many: ServeMany, path: str) -> None:
    running = await serve_many()
    assert (await running.post({"inputs": [tensor([1.0])]}, path)).status == 404
    answer = await running.get("/openapi.json")
    assert (answer.status, "?model=NAME" in answer.error) == (404, True)


async def test_calls_by_grpc_go_by_the_name_in_the_message(serve_many: ServeMany) -> None:
    running = await serve_many(grpc_port=free_port(), load=False)
    async with grpc.aio.insecure_channel(f"{HOST}:{running.grpc_port}") as channel:
        ready = oip.ModelReadyResponse.FromString(
            await begin(channel, "ModelReady", oip.ModelReadyRequest(name="triple"))
        )
        assert ready.ready
        other = await begin(channel, "ModelReady", oip.ModelReadyRequest(name="other"))
        assert not oip.ModelReadyResponse.FromString(other).ready
        for name, factor in (("triple", 3.0), ("double", 2.0)):  # loaded for this call
            answer = await infer(channel, floats(7.0), model_name=name)
            assert (answer.model_name, answer.outputs[0].contents.fp32_contents[0]) == (name, 7 * factor)
        call = begin(channel, "ModelMetadata", oip.ModelMetadataRequest(name="triple"))
        assert oip.ModelMetadataResponse.FromString(await call).versions == ["triple-00001"]
        assert (await call.trailing_metadata())["knodel-revision"] == "triple-00001"
        for wrong in (
            asked(floats(1.0), model_name="other"),
            asked(floats(1.0), model_name="triple", model_version="9"),
        ):
            assert (await refused(begin(channel, "ModelInfer", wrong))).code() == grpc.StatusCode.NOT_FOUND
        for message in (b"", b"\xff" * 20):
            assert (await refused(begin(channel, "ModelInfer", message))).code() in (
                grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT,
            )  # fmt: skip


async def test_models_are_loaded_while_they_fit_and_the_least_recently_used_goes(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 3)
    running = await serve_many("--memory-limit", ONE_MODEL)
    first = {"times1": ("times1-00001", "READY")}
    assert await running.states(ready=True) == first
    assert await running.reason("times2") == "it is loaded on the first request"
    for number in (2, 1, 3, 3, 2):
        assert (await running.ask_for(f"times{number}", 10.0)).json["outputs"][0]["data"] == [10.0 * number]
        assert list(await running.states(ready=True)) == [f"times{number}"]
    stats = await running.stats()
    assert (stats["requests"], stats["models"]["times3"]["requests"], stats["slots"] > 0) == (5, 2, True)


async def test_of_two_that_fit_the_one_goes_that_was_not_used_lately(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 3)
    running = await serve_many("--memory-limit", str(5 * SIZE // 2))
    assert list(await running.states(ready=True)) == ["times1", "times2"]
    for number in (1, 3):
        assert (await running.ask_for(f"times{number}", 1.0)).status == 200
    assert list(await running.states(ready=True)) == ["times1", "times3"]


async def test_a_model_goes_only_when_it_has_answered(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 1)
    models.write(folder, "slow")
    running = await serve_many("--memory-limit", str(len(weighty(1))))
    assert list(await running.states(ready=True)) == ["slow"]
    calls = [asyncio.create_task(running.ask_for("slow", 1.0)) for _ in range(6)]

    async def busy() -> bool:
        stats = await running.stats()
        return bool(stats["active"] + stats["queued"] == len(calls))

    await eventually(busy)
    other = asyncio.create_task(running.ask_for("times1", 4.0))
    assert [(await call).status for call in calls] == [200] * 6
    assert (await other).json["outputs"][0]["data"] == [4.0]


async def test_64_callers_of_more_models_than_fit_each_get_their_own_answer(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 4)
    running = await serve_many("--memory-limit", str(5 * SIZE // 2), load=False)

    async def caller(number: int) -> None:
        factor = number % 4 + 1
        for turn in range(3):
            answer = await running.ask_for(f"times{factor}", float(number), float(turn))
            assert (answer.status, answer.json["outputs"][0]["data"]) == (200, [factor * number, factor * turn])

    await asyncio.gather(*(caller(number) for number in range(64)))
    assert (await running.stats())["requests"] == 64 * 3
    assert len(await running.states(ready=True)) <= 2


async def test_a_model_that_never_fits_is_503_and_the_index_says_why(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 1)
    running = await serve_many("--memory-limit", "1Ki")
    answer = await running.ask_for("times1", 1.0)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "the limit of all models is 1 KiB" in await running.reason("times1")


async def test_a_model_that_cannot_be_loaded_leaves_the_others_alone(serve_many: ServeMany, folder: Path) -> None:
    models.write(folder, "truncated")
    (folder / "empty").mkdir()
    running = await serve_many()
    states = await running.states()
    assert [states[name][1] for name in ("double", "triple", "truncated", "empty")] == [
        "READY", "READY", "UNAVAILABLE", "UNAVAILABLE",
    ]  # fmt: skip
    assert "truncated.onnx" in await running.reason("truncated")
    assert "modelFormat" in await running.reason("empty")
    for _ in range(2):
        answer = await running.ask_for("truncated", 1.0)
        assert (answer.status, "onnx" in answer.error) == (503, False)
    ready = await running.get("/v2/models/truncated/ready")
    assert (ready.status, ready.json["ready"]) == (503, False)
    assert (await running.ask_for("triple", 1.0)).status == 200


async def test_a_body_that_comes_in_pieces_waits_for_its_model(serve_many: ServeMany) -> None:
    running = await serve_many(load=False)
    whole = infer_of("triple", 1.0)
    caller = await running.connect()
    await caller.send(whole[:-10])

    async def loaded() -> bool:
        return "triple" in await running.states(ready=True)

    await eventually(loaded)
    await caller.send(whole[-10:])
    assert (await caller.answer()).json["outputs"][0]["data"] == [3.0]
    caller.close()


async def test_it_is_not_ready_before_what_fits_is_loaded_and_not_while_it_stops(serve_many: ServeMany) -> None:
    running = await serve_many(load=False)
    assert (await running.get("/v2/health/ready")).status == 503
    await running.server.load()
    assert (await running.get("/v2/health/ready")).status == 200
    await running.server.drain()
    assert (await running.get("/v2/health/ready")).status == 503


async def not_ready(running: Many) -> bool:
    """Return whether the server is not ready."""
    return (await running.get("/v2/health/ready")).status == 503


async def test_while_it_stops_models_are_still_loaded_for_who_asks(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    weighty_models(folder, 2)
    running = await serve_many("--memory-limit", ONE_MODEL)
    draining = asyncio.create_task(running.server.drain())
    await eventually(lambda: not_ready(running))
    assert (await running.ask_for("times2", 1.0)).json["outputs"][0]["data"] == [2.0]
    await draining


async def test_metrics_tell_the_models_apart(serve_many: ServeMany) -> None:
    running = await serve_many()
    await running.ask_for("double", 1.0)
    page = (await ask(running.management_port, request("GET", "/metrics"))).body.decode()
    assert 'knodel_model_loaded{model="double",revision="double-00001"} 1\n' in page
    assert 'knodel_slots{model="triple",revision="triple-00001"} 4\n' in page
    assert page.count("# TYPE knodel_slots ") == 1
