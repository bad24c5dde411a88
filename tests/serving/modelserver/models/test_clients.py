"""Triton's client against the model repository, and gRPC clients of more models than fit into memory."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import grpc.aio
import pytest

from tests.serving.modelserver.client import HOST
from tests.serving.modelserver.grpc_parts import floats, infer
from tests.serving.modelserver.models.conftest import SIZE, ServeMany, weighty
from tests.serving.modelserver.pool import TOKEN
from tests.support import models
from tests.support.ports import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries under the client
    from tritonclient.http.aio import InferenceServerClient
    from tritonclient.utils import InferenceServerException


async def test_tritons_client_lists_unloads_and_loads_models(serve_many: ServeMany, folder: Path) -> None:
    running = await serve_many()
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with InferenceServerClient(f"{HOST}:{running.management_port}") as client:
        assert (await client.get_server_metadata())["extensions"] == ["model_repository"]
        index = await client.get_model_repository_index(headers=bearer)
        assert [entry["name"] for entry in index] == ["double", "triple"]
        await client.unload_model("double", headers=bearer)
        assert (await running.ask_for("double", 1.0)).status == 503
        (folder / "double.onnx").write_bytes(models.times(4))
        await client.load_model("double", headers=bearer)
        assert (await running.ask_for("double", 1.0)).json["outputs"][0]["data"] == [4.0]
        with pytest.raises(InferenceServerException, match="storageUri of 'nothing'"):
            await client.load_model("nothing", headers=bearer)
        with pytest.raises(InferenceServerException, match="token"):
            await client.load_model("double")


async def test_callers_by_grpc_of_more_models_than_fit_each_get_their_own_answer(
    serve_many: ServeMany, folder: Path, measured_by_files: None
) -> None:
    for number in range(4):
        (folder / f"times{number}.onnx").write_bytes(weighty(number))
    options = ("--memory-limit", str(5 * SIZE // 2))
    running = await serve_many(*options, load=False, grpc_port=free_port())
    async with grpc.aio.insecure_channel(f"{HOST}:{running.grpc_port}") as channel:
        calls = [infer(channel, floats(float(one)), model_name=f"times{one % 4}") for one in range(32)]
        answers = await asyncio.gather(*calls)
    found = [(answer.model_name, answer.outputs[0].contents.fp32_contents[0]) for answer in answers]
    assert found == [(f"times{one % 4}", float(one % 4 * one)) for one in range(32)]
