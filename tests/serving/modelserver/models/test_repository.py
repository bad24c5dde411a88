"""The model repository extension on the management port, for servers of many models and of one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serving.modelserver.base.options import LOAD_TOKEN
from serving.modelserver.model_host import MIN_THREADS
from tests.serving.modelserver.client import ask, request
from tests.serving.modelserver.conftest import Serve
from tests.serving.modelserver.inside import ASYNC, INSIDE, PLAIN, PYTHON, SLOTS
from tests.serving.modelserver.models.conftest import Many, ServeMany, weighty
from tests.support import models
from tests.support.wait import eventually


async def answers(running: Many, name: str) -> float:
    """Return the output of the model for 1."""
    data: list[float] = (await running.ask_for(name, 1.0)).json["outputs"][0]["data"]
    return data[0]


async def test_the_index_has_every_model_with_version_state_and_reason(serve_many: ServeMany) -> None:
    running = await serve_many()
    expected = [
        {"name": name, "version": f"{name}-00001", "state": "READY", "reason": ""} for name in ("double", "triple")
    ]
    assert (await running.manage("/index")).json == expected
    assert (await running.manage("/index", method="GET")).json == expected
    await running.manage("/models/double/unload")
    assert (await running.manage("/index", {"ready": True})).json == expected[1:]
    assert (await running.manage("/index", {"ready": "yes"})).status == 400
    page = await ask(running.management_port, request("GET", "/v2"))
    assert page.json["extensions"] == ["model_repository"]


async def test_a_reload_serves_what_the_files_are_now_under_the_next_version(
    serve_many: ServeMany, folder: Path
) -> None:
    running = await serve_many()
    assert await answers(running, "double") == 2.0
    (folder / "double.onnx").write_bytes(models.times(5))
    assert await answers(running, "double") == 2.0
    answer = await running.manage("/models/double/load")
    assert (answer.status, answer.json) == (200, {"name": "double", "state": "READY"})
    assert await answers(running, "double") == 5.0
    assert (await running.states())["double"] == ("double-00002", "READY")
    assert (await running.manage("/models/double/load", {"parameters": {"revision": "blue"}})).status == 200
    assert (await running.states())["double"] == ("blue", "READY")


async def test_while_it_is_reloaded_the_former_answers_and_a_failed_reload_changes_nothing(
    serve_many: ServeMany, folder: Path
) -> None:
    running = await serve_many()
    stop = asyncio.Event()

    async def caller() -> list[float]:
        seen = []
        while not stop.is_set():
            seen.append(await answers(running, "double"))
        return seen

    calling = asyncio.create_task(caller())
    (folder / "double.onnx").write_bytes(models.truncated())
    answer = await running.manage("/models/double/load")
    assert (answer.status, "double.onnx" in answer.error) == (400, True)
    assert (await running.states())["double"] == ("double-00001", "READY")
    (folder / "double.onnx").write_bytes(weighty(7))
    assert (await running.manage("/models/double/load")).status == 200
    await eventually(lambda: answers_now(running))
    stop.set()
    assert set(await calling) == {2.0, 7.0}


async def answers_now(running: Many) -> bool:
    """Return whether the reloaded model answers."""
    return await answers(running, "double") == 7.0


async def test_an_unloaded_model_stays_so_until_it_is_loaded_by_a_call(serve_many: ServeMany) -> None:
    running = await serve_many()
    answer = await running.manage("/models/double/unload", {"parameters": {"unload_dependents": False}})
    assert (answer.status, answer.json) == (200, {"name": "double", "state": "UNAVAILABLE"})
    refused = await running.ask_for("double", 1.0)
    assert (refused.status, "load it again" in refused.error) == (503, True)
    assert (await running.get("/v2/models/double/ready")).status == 503
    assert await running.reason("double") == "unloaded by a call"
    assert await answers(running, "triple") == 3.0
    assert (await running.manage("/models/double/load", {})).status == 200
    assert await answers(running, "double") == 2.0


async def test_an_unload_waits_for_what_is_in_the_model(serve_many: ServeMany, folder: Path) -> None:
    models.write(folder, "slow")
    running = await serve_many()
    call = asyncio.create_task(running.ask_for("slow", 1.0))

    async def busy() -> bool:
        return bool((await running.stats())["active"] == 1)

    await eventually(busy)
    unloading = asyncio.create_task(running.manage("/models/slow/unload"))
    assert (await call).status == 200
    assert (await unloading).status == 200


async def test_a_load_call_adds_what_came_to_the_folder_and_what_it_names_by_uri(
    serve_many: ServeMany, folder: Path, tmp_path: Path
) -> None:
    running = await serve_many()
    (folder / "later.onnx").write_bytes(models.times(8))
    assert (await running.ask_for("later", 1.0)).status == 404
    assert (await running.manage("/models/later/load")).status == 200
    assert await answers(running, "later") == 8.0
    (tmp_path / "elsewhere.onnx").write_bytes(models.times(9))
    parameters = {"storageUri": (tmp_path / "elsewhere.onnx").as_uri(), "slots": "2", "maxBatchSize": 8}
    assert (await running.manage("/models/named/load", {"parameters": parameters})).status == 200
    assert await answers(running, "named") == 9.0
    assert (await running.stats())["models"]["named"]["slots"] == 16  # two batches


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/other/load", {}, 400),
        ("/models/Bad_Name/load", {}, 400),
        ("/models/double/load", {"parameters": {"config": "{}"}}, 400),
        ("/models/double/load", {"parameters": {"digest": "sha256:0"}}, 400),
        ("/models/double/load", {"parameters": {"digest": "sha256:" + "0" * 64}}, 400),
        ("/models/double/load", [], 400),
        ("/models/other/unload", {}, 404),
        ("/models/double/unload", {"parameters": {"force": True}}, 400),
    ],
)
async def test_a_call_that_makes_no_sense_changes_nothing(
    serve_many: ServeMany, path: str, body: Any, status: int
) -> None:
    running = await serve_many()
    assert (await running.manage(path, body)).status == status
    assert await running.states() == {name: (f"{name}-00001", "READY") for name in ("double", "triple")}


@pytest.mark.parametrize("token", [None, "", "wrong"])
async def test_without_the_token_nothing_is_loaded_or_unloaded(serve_many: ServeMany, token: str | None) -> None:
    running = await serve_many()
    for path in ("/models/double/load", "/models/double/unload"):
        answer = await running.manage(path, token=token)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert (await running.manage("/index", token=token)).status == 200


async def test_a_server_that_knows_no_token_shows_its_models_and_loads_none(serve_many: ServeMany) -> None:
    running = await serve_many(**{LOAD_TOKEN: ""})
    assert (await running.manage("/index", token=None)).status == 200
    assert (await running.manage("/models/double/load", token="")).status == 401


async def test_a_server_of_one_model_shows_it_and_keeps_it(serve: Serve) -> None:
    running = await serve(models.double())
    index = await ask(running.management_port, request("POST", "/v2/repository/index"))
    assert index.json == [{"name": "m", "version": "m-00007", "state": "READY", "reason": ""}]
    for verb in ("load", "unload"):
        path = f"/v2/repository/models/m/{verb}"
        assert (await ask(running.management_port, request("POST", path, authorization="Bearer x"))).status == 401


async def test_the_data_port_has_no_repository(serve_many: ServeMany) -> None:
    running = await serve_many()
    paths: Mapping[str, str] = {"/v2/repository/index": "GET", "/v2/repository/models/double/unload": "POST"}
    for path, method in paths.items():
        assert (await ask(running.port, request(method, path))).status == 404


async def test_a_model_loaded_anew_has_as_many_inside_as_suits_it(serve_many: ServeMany, tmp_path: Path) -> None:
    running = await serve_many(*PYTHON)
    for number, (code, most) in enumerate([(ASYNC, SLOTS), (PLAIN, MIN_THREADS), (ASYNC, SLOTS)]):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "model.py").write_text(code)
        parameters = {"storageUri": place.as_uri(), "modelFormat": "python"}
        assert (await running.manage("/models/anew/load", {"parameters": parameters})).status == 200
        assert await INSIDE.most_of(running, partial(running.ask_for, "anew", 1.0), most) == most
