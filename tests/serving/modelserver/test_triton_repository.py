"""Triton's client with a server of a Triton repository."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.engines.layouts.test_triton import CONFIG, onnx, repository
from tests.serving.modelserver.conftest import NAME, Serve
from tests.support import models

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries under the client
    import tritonclient.http as triton
    from tritonclient.http.aio import InferenceServerClient

BATCHED = f"{CONFIG} dynamic_batching {{ preferred_batch_size: 8 max_queue_delay_microseconds: 100000 }}"


def rows(*values: float) -> Any:
    made = triton.InferInput("x", [len(values), 2], "FP32")
    made.set_data_from_numpy(np.array([[each, each] for each in values], np.float32))
    return made


@pytest.mark.parametrize(("options", "slots"), [((), 16), (("--max-batch-size", "2"), 4)])
async def test_tritons_client_reads_the_configs_tensors_and_batches(
    serve: Serve, tmp_path: Path, options: tuple[str, ...], slots: int
) -> None:
    example = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}'
    folder = repository(
        tmp_path / "repository",
        m__config_dot_pbtxt=BATCHED,
        m__1__model_dot_onnx=onnx(),
        m__example_dot_json=example,
    )
    running = await serve(models.double(), "--storage-uri", folder.as_uri(), "--slots", "1", *options)
    async with InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        described = await client.get_model_metadata(NAME)
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]
        results = await asyncio.gather(*(client.infer(NAME, [rows(number)]) for number in range(32)))
    assert [one.as_numpy("y").tolist() for one in results] == [[[2 * n, 2 * n]] for n in range(32)]
    assert (await running.stats())["slots"] == slots  # of the config's batches, unless the options set others
    assert '"data":[1,2]' in (await running.get("/openapi.json")).body.decode().replace(" ", "")
