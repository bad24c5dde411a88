"""Triton's gRPC client against the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from serving.engines.base.datatypes import DATATYPES
from tests.serving.modelserver.grpc_parts import HOST, NAME, REVISION, Parts, serving
from tests.support import models

ONNX_TYPES = {
    "FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BYTES": 8, "BOOL": 9,
    "FP16": 10, "FP64": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip
"""TensorProto.DataType by the protocol's name; ONNX Runtime takes no BF16 from Python."""


def same(datatype: str) -> bytes:
    """Return a model that returns its input."""
    kind = ONNX_TYPES[datatype]
    node = models.node("Identity", ["x"], ["y"])
    return models.model([node], [models.value("x", kind, ["n"])], [models.value("y", kind, ["n"])])


@pytest.fixture
async def double() -> AsyncIterator[Parts]:
    """Run a server of FP32 x [n] → y = 2x."""
    async with serving(models.double()) as parts:
        yield parts


def client_of(parts: Parts) -> Any:
    """Return a client of the port."""
    return triton_aio.InferenceServerClient(f"{HOST}:{parts.port}")


def given(array: Any, datatype: str, name: str = "x") -> Any:
    """Return an input tensor."""
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


@pytest.mark.parametrize("algorithm", ["gzip", "deflate", None])
@pytest.mark.parametrize("count", [1, 100_000])
async def test_messages_may_be_compressed(double: Parts, algorithm: str | None, count: int) -> None:
    array = np.full(count, 1.5, np.float32)
    async with client_of(double) as client:
        result = await client.infer(NAME, [given(array, "FP32")], compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * array)
    assert double.budget.lent == 0


async def test_health_and_metadata(double: Parts) -> None:
    async with client_of(double) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready(NAME)
        assert not await client.is_model_ready("nope")
        assert not await client.is_model_ready(NAME, "nope")
        assert (await client.get_server_metadata()).name == "knodel"
        metadata = await client.get_model_metadata(NAME, REVISION)
        assert (metadata.name, metadata.inputs[0].name, metadata.inputs[0].datatype) == (NAME, "x", "FP32")


async def test_an_inference_with_id_and_requested_output(double: Parts) -> None:
    async with client_of(double) as client:
        outputs = [triton.InferRequestedOutput("y")]
        inputs = [given(np.array([1.0, 2.0], np.float32), "FP32")]
        result = await client.infer(NAME, inputs, request_id="seven", outputs=outputs)
        assert result.as_numpy("y").tolist() == [2.0, 4.0]
        answer = result.get_response()
        assert (answer.id, answer.model_version) == ("seven", REVISION)


@pytest.mark.parametrize("datatype", sorted(ONNX_TYPES))
async def test_every_datatype_goes_there_and_back(datatype: str) -> None:
    array = np.array([0, 1, 1], DATATYPES[datatype].dtype)
    if datatype == "BYTES":
        array = np.array([b"", b"a\x00", "ä".encode()], dtype=object)
    async with serving(same(datatype)) as parts, client_of(parts) as client:
        result = await client.infer(NAME, [given(array, datatype)])
        assert result.as_numpy("y").tolist() == array.tolist()


async def test_errors_reach_the_client_in_words(double: Parts) -> None:
    async with client_of(double) as client:
        with pytest.raises(InferenceServerException, match="unknown model 'other'") as unknown:
            await client.infer("other", [given(np.array([1.0], np.float32), "FP32")])
        assert unknown.value.status() == "StatusCode.NOT_FOUND"
        with pytest.raises(InferenceServerException, match="the model expects FP32"):
            await client.infer(NAME, [given(np.array([1], np.int32), "INT32")])
        with pytest.raises(InferenceServerException, match="management port"):
            await client.load_model(NAME)


async def test_statistics_and_other_extensions_are_refused_in_words(double: Parts) -> None:
    async with client_of(double) as client:
        for call, words in (
            (client.get_inference_statistics(), "ModelStatistics is not supported.*/metrics on the management port"),
            (client.get_model_config(NAME), "ModelConfig is not supported: ServerMetadata lists"),
            (client.get_system_shared_memory_status(), "SystemSharedMemoryStatus is not supported"),
        ):
            with pytest.raises(InferenceServerException, match=words) as refused:
                await call
            assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


async def test_the_clients_deadline_is_kept() -> None:
    async with serving(models.slow()) as parts, client_of(parts) as client:
        with pytest.raises(InferenceServerException) as late:
            await client.infer(NAME, [given(np.array([1.0], np.float32), "FP32")], client_timeout=0.02)
        assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"
