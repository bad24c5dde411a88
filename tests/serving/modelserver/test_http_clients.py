"""Third-party HTTP clients: Triton's and the CloudEvents SDK."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from cloudevents.core.bindings import http as events
from cloudevents.core.v1.event import CloudEvent

from tests.serving.modelserver.conftest import NAME, REVISION, Running, Serve
from tests.serving.modelserver.test_protocol import two_outputs
from tests.support import models

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries under the client
    import tritonclient.http as triton
    from tritonclient.http.aio import InferenceServerClient
    from tritonclient.utils import InferenceServerException


@pytest.fixture
async def client(double: Running) -> AsyncIterator[Any]:
    """Return Triton's client for a server of y = 2x."""
    async with InferenceServerClient(f"127.0.0.1:{double.port}") as made:
        yield made


def given(values: list[Any], datatype: str, dtype: Any, *, binary: bool) -> Any:
    """Return an input of Triton's client."""
    made = triton.InferInput("x", [len(values)], datatype)
    made.set_data_from_numpy(np.array(values, dtype=dtype), binary_data=binary)
    return made


async def test_tritons_client_sees_a_server_and_a_model(client: Any) -> None:
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready(NAME)
    assert await client.is_model_ready(NAME, REVISION)
    assert not await client.is_model_ready("nope")
    assert (await client.get_server_metadata())["name"] == "knodel"
    described = await client.get_model_metadata(NAME)
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
async def test_tritons_client_infers(client: Any, binary_in: bool, binary_out: bool, coding: str | None) -> None:
    result = await client.infer(
        NAME,
        [given([1, 2.5], "FP32", np.float32, binary=binary_in)],
        outputs=[triton.InferRequestedOutput("y", binary_data=binary_out)],
        request_id="7",
        request_compression_algorithm=coding,
    )
    np.testing.assert_array_equal(result.as_numpy("y"), [2, 5])
    assert (result.get_response()["id"], result.get_response()["model_version"]) == ("7", REVISION)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("asked", ["gzip", "deflate"])
async def test_tritons_client_reads_compressed_answers(client: Any, asked: str, binary: bool) -> None:
    values = [1.5] * 5000
    result = await client.infer(
        NAME,
        [given(values, "FP32", np.float32, binary=True)],
        outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
        request_compression_algorithm="deflate",
        response_compression_algorithm=asked,
    )
    np.testing.assert_array_equal(result.as_numpy("y"), np.full(5000, 3.0))


async def test_tritons_client_gets_the_outputs_that_it_asks_for(serve: Serve) -> None:
    running = await serve(two_outputs())
    async with InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        inputs = [given([-1], "FP32", np.float32, binary=True)]
        both = await client.infer(NAME, inputs)
        one = await client.infer(NAME, inputs, outputs=[triton.InferRequestedOutput("neg")])
    assert (both.as_numpy("abs").tolist(), both.as_numpy("neg").tolist()) == ([1], [1])
    assert one.as_numpy("abs") is None and one.as_numpy("neg").tolist() == [1]


async def test_tritons_client_sends_texts(serve: Serve) -> None:
    running = await serve(models.text())
    async with InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        for binary in (True, False):
            result = await client.infer(NAME, [given(["a", "Ü"], "BYTES", object, binary=binary)])
            assert [item.decode() for item in result.as_numpy("y")] == ["a", "Ü"]


async def test_tritons_client_learns_where_statistics_are(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="/metrics on the management port"):
        await client.get_inference_statistics()


async def test_tritons_client_reads_an_error(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="no input 'z'"):
        await client.infer(NAME, [triton.InferInput("z", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))])


@pytest.mark.parametrize("encode", [events.to_binary_event, events.to_structured_event])
async def test_the_cloudevents_sdk_sends_a_request_and_reads_the_answer(double: Running, encode: Any) -> None:
    attributes = {
        "id": "e 1",
        "source": "/sensors/7",
        "type": "dev.example.reading",
        "datacontenttype": "application/json",
    }
    message = encode(CloudEvent(attributes, {"instances": [1, 2.5]}))
    url = f"http://127.0.0.1:{double.port}/v1/models/{NAME}:predict"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=message.body, headers=message.headers) as answer,
    ):
        reply = events.from_http_event(events.HTTPMessage(dict(answer.headers), await answer.read()))
    assert reply.get_data() == {"predictions": [2.0, 5.0]}
    assert reply.get_type() == "io.kserve.inference.response"
    assert reply.get_extension("causationid") == "e 1"
    assert reply.get_time() is not None


async def test_tritons_blocking_client_infers(double: Running) -> None:
    def infer() -> Any:
        with triton.InferenceServerClient(f"127.0.0.1:{double.port}") as client:
            return client.infer(NAME, [given([4], "FP32", np.float32, binary=True)]).as_numpy("y").tolist()

    assert await asyncio.to_thread(infer) == [8]
