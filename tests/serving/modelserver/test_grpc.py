"""The inference protocol over gRPC on real sockets: responses, errors, deadlines and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from serving.modelserver.base.errors import CannotListen, NotReady
from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from serving.modelserver.grpc import messages
from serving.modelserver.grpc.flow_control import COMPRESSIONS
from serving.modelserver.grpc.server import GrpcServer
from serving.modelserver.grpc.service import HEALTH
from tests.serving.modelserver.grpc_parts import (
    HOST,
    NAME,
    REVISION,
    SERVICE,
    Parts,
    asked,
    begin,
    channel_to,
    floats,
    infer,
    raw_floats,
    refused,
    serving,
)
from tests.support import models
from tests.support.wait import eventually

Code = grpc.StatusCode


@pytest.fixture
async def double() -> AsyncIterator[Parts]:
    """Run a server of FP32 x [n] → y = 2x."""
    async with serving(models.double()) as parts:
        yield parts


@pytest.fixture
async def channel(double: Parts) -> AsyncIterator[grpc.aio.Channel]:
    """Return a channel to the server."""
    async with channel_to(double) as made:
        yield made


async def test_health_is_told_for_server_and_model(channel: grpc.aio.Channel) -> None:
    live = await begin(channel, "ServerLive", b"")
    assert messages.ServerLiveResponse.FromString(live).live
    ready = await begin(channel, "ServerReady", b"")
    assert messages.ServerReadyResponse.FromString(ready).ready
    for name, version, is_ready in (
        (NAME, "", True),
        (NAME, REVISION, True),
        (NAME, "7", True),
        (NAME, "8", False),
        ("other", "", False),
    ):
        asked_for = messages.ModelReadyRequest(name=name, version=version)
        assert messages.ModelReadyResponse.FromString(await begin(channel, "ModelReady", asked_for)).ready is is_ready


async def test_grpcs_own_health_check_says_the_same(channel: grpc.aio.Channel) -> None:
    for service in ("", SERVICE):
        asked_for = messages.HealthCheckRequest(service=service)
        answer = messages.HealthCheckResponse.FromString(await begin(channel, "Check", asked_for, service=HEALTH))
        assert answer.status == messages.HealthCheckResponse.SERVING
    unknown = await refused(begin(channel, "Check", messages.HealthCheckRequest(service="other"), service=HEALTH))
    assert unknown.code() == Code.NOT_FOUND


async def test_metadata_describes_server_and_model(channel: grpc.aio.Channel) -> None:
    server = messages.ServerMetadataResponse.FromString(await begin(channel, "ServerMetadata", b""))
    assert (server.name, bool(server.version), "binary_tensor_data" in server.extensions) == ("knodel", True, True)
    content = await begin(channel, "ModelMetadata", messages.ModelMetadataRequest(name=NAME))
    model = messages.ModelMetadataResponse.FromString(content)
    assert (model.name, list(model.versions), model.platform) == (NAME, [REVISION], "onnx_onnxv1")
    assert [(one.name, one.datatype, list(one.shape)) for one in (*model.inputs, *model.outputs)] == [
        ("x", "FP32", [-1]),
        ("y", "FP32", [-1]),
    ]


async def test_an_answer_has_model_version_id_and_revision(channel: grpc.aio.Channel) -> None:
    call = begin(channel, "ModelInfer", asked(floats(1.0, 2.5), id="seven"))
    answer = messages.ModelInferResponse.FromString(await call)
    assert (answer.model_name, answer.model_version, answer.id) == (NAME, REVISION, "seven")
    assert [(one.name, one.datatype, list(one.shape)) for one in answer.outputs] == [("y", "FP32", [2])]
    assert list(answer.outputs[0].contents.fp32_contents) == [2.0, 5.0]
    assert dict(await call.trailing_metadata())["knodel-revision"] == REVISION


async def test_a_raw_request_has_a_raw_answer(channel: grpc.aio.Channel) -> None:
    given = {"name": "x", "datatype": "FP32", "shape": [2]}
    answer = await infer(channel, given, raw_input_contents=[b"\x00\x00\x80\x3f\x00\x00\x00\x40"])
    assert raw_floats(answer) == [2.0, 4.0]
    assert not answer.outputs[0].HasField("contents")


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        ("ModelInfer", asked(floats(1.0), model_name="other"), Code.NOT_FOUND),
        ("ModelInfer", asked(floats(1.0), model_version="8"), Code.NOT_FOUND),
        ("ModelInfer", asked(floats(1.0, name="z")), Code.INVALID_ARGUMENT),
        ("ModelInfer", asked(), Code.INVALID_ARGUMENT),
        ("ModelInfer", b"\xff\xff", Code.INVALID_ARGUMENT),
        ("ModelMetadata", messages.ModelMetadataRequest(name=NAME, version="x"), Code.NOT_FOUND),
        ("ModelMetadata", b"\xff", Code.INVALID_ARGUMENT),
        ("RepositoryModelLoad", b"", Code.UNIMPLEMENTED),
        ("ModelStreamInfer", b"", Code.UNIMPLEMENTED),
        ("ModelStatistics", b"", Code.UNIMPLEMENTED),
        ("NoSuchMethod", b"", Code.UNIMPLEMENTED),
    ],
)
async def test_what_is_wrong_is_told_by_its_code(
    channel: grpc.aio.Channel, method: str, message: Any, code: grpc.StatusCode
) -> None:
    error = await refused(begin(channel, method, message))
    assert error.code() == code
    assert error.details()
    assert (await infer(channel, floats(1.0))).outputs[0].contents.fp32_contents[0] == 2.0


async def test_errors_name_the_revision_too(double: Parts, channel: grpc.aio.Channel) -> None:
    error = await refused(begin(channel, "ModelInfer", asked()))
    assert dict(error.trailing_metadata())["knodel-revision"] == REVISION
    await eventually(lambda: double.codes() == {("grpc", "3"): 1})


@pytest.mark.bad_input("infer-grpc")
async def test_a_message_beyond_the_limit_is_refused_and_the_connection_goes_on() -> None:
    async with serving(models.double(), limits=ServerLimits(body=100_000)) as parts, channel_to(parts) as channel:
        error = await refused(begin(channel, "ModelInfer", b"\0" * 100_001))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        assert (await infer(channel, floats(3.0))).outputs[0].contents.fp32_contents[0] == 6.0
        await eventually(lambda: parts.budget.lent == 0)


async def test_a_message_as_large_as_the_limit_is_answered() -> None:
    largest = 8 * MEBIBYTE
    count = (largest - 100) // 4
    given = {"name": "x", "datatype": "FP32", "shape": [count]}
    async with serving(models.double(), limits=ServerLimits(body=largest)) as parts, channel_to(parts) as channel:
        answer = await infer(channel, given, raw_input_contents=[b"\0" * (4 * count)])
        assert len(answer.raw_output_contents[0]) == 4 * count
        assert parts.budget.lent == 0


@asynccontextmanager
async def counted(port: int) -> AsyncIterator[tuple[int, list[int]]]:
    """Run a proxy in front of `port`; yield its port and the sizes of the data that it returned."""
    received: list[int] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sizes: list[int]) -> None:
        while data := await reader.read(1 << 16):
            sizes.append(len(data))
            writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, to, []), copy(upstream, writer, received), return_exceptions=True)

    async with await asyncio.start_server(connect, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1], received


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
async def test_a_message_is_answered_as_it_came(double: Parts, compression: grpc.Compression) -> None:
    content = asked({"name": "x", "datatype": "FP32", "shape": [50_000]}, raw_input_contents=[bytes(200_000)])
    async with counted(double.port) as (port, received):
        async with grpc.aio.insecure_channel(f"{HOST}:{port}", compression=compression) as channel:
            answer = messages.ModelInferResponse.FromString(await begin(channel, "ModelInfer", content))
        assert answer.raw_output_contents == [bytes(200_000)]
        assert (sum(received) < 20_000) is (compression == grpc.Compression.Gzip)
    assert double.budget.lent == 0


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_what_a_compressed_message_inflates_to_is_bounded(compression: grpc.Compression) -> None:
    async with serving(models.double(), limits=ServerLimits(body=MEBIBYTE)) as parts:
        address = f"{HOST}:{parts.port}"
        async with grpc.aio.insecure_channel(address, compression=compression) as channel:
            bomb = asked({"name": "x", "datatype": "FP32", "shape": [1]}, raw_input_contents=[bytes(32 * MEBIBYTE)])
            error = await refused(begin(channel, "ModelInfer", bomb))
            assert error.code() == Code.RESOURCE_EXHAUSTED and "1 MiB" in error.details()
            assert (await infer(channel, floats(1.0))).outputs
        assert parts.budget.lent == 0


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize("magic", [*COMPRESSIONS])
@pytest.mark.parametrize("rest", [b"", b"\0" * 100])
async def test_bytes_that_begin_as_a_compressed_message_and_are_none_are_refused(
    channel: grpc.aio.Channel, magic: bytes, rest: bytes
) -> None:
    error = await refused(begin(channel, "ModelInfer", magic + rest))
    assert error.code() == Code.INVALID_ARGUMENT


async def test_more_than_slots_and_queue_is_refused_at_once() -> None:
    async with serving(models.slow(), slots=1, queue=1) as parts, channel_to(parts) as channel:
        first = asyncio.ensure_future(infer(channel, floats(1.0)))
        await eventually(lambda: parts.busy() == (1, 0))
        second = asyncio.ensure_future(infer(channel, floats(2.0)))
        await eventually(lambda: parts.busy() == (1, 1))
        error = await refused(begin(channel, "ModelInfer", asked(floats(3.0))))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        answers = await asyncio.gather(first, second)
        assert [answer.outputs[0].contents.fp32_contents[0] for answer in answers] == [2.0, 4.0]


async def test_the_models_deadline_holds_in_queue_and_model() -> None:
    async with serving(models.slow(), slots=1, timeout=0.04) as parts, channel_to(parts) as channel:
        calls = [begin(channel, "ModelInfer", asked(floats(1.0))) for _ in range(2)]
        errors = await asyncio.gather(*map(refused, calls))
        codes = {error.code() for error in errors}
        assert Code.DEADLINE_EXCEEDED in codes <= {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
        await eventually(lambda: parts.busy() == (0, 0))


async def test_the_callers_deadline_holds_when_it_is_shorter() -> None:
    async with serving(models.slow(), slots=1) as parts, channel_to(parts) as channel:
        calls = [begin(channel, "ModelInfer", asked(floats(1.0)), timeout=0.04) for _ in range(2)]
        errors = await asyncio.gather(*map(refused, calls))
        assert {error.code() for error in errors} <= {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
        await eventually(lambda: parts.busy() == (0, 0))


@pytest.mark.fault("M9")
async def test_a_caller_that_cancels_frees_its_slot_and_its_place() -> None:
    async with serving(models.slow(), slots=1) as parts, channel_to(parts) as channel:
        inside = begin(channel, "ModelInfer", asked(floats(1.0)))
        await eventually(lambda: parts.busy() == (1, 0))
        waiting = begin(channel, "ModelInfer", asked(floats(1.0)))
        await eventually(lambda: parts.busy() == (1, 1))
        waiting.cancel()
        inside.cancel()
        await eventually(lambda: parts.busy() == (0, 0))
        assert (await infer(channel, floats(1.0))).outputs[0].contents.fp32_contents[0] == 2.0
        assert parts.codes()["grpc", "1"] == 2


async def test_calls_that_are_cancelled_at_once_leave_nothing_behind(
    double: Parts, channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        calls = [begin(channel, "ModelInfer", asked(floats(1.0))) for _ in range(100)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
    assert (await infer(channel, floats(1.0))).outputs[0].contents.fp32_contents[0] == 2.0
    await eventually(lambda: (double.busy(), double.budget.lent) == ((0, 0), 0))
    assert not caplog.records


async def test_callers_that_send_no_message_borrow_memory_and_others_are_served(
    double: Parts, channel: grpc.aio.Channel
) -> None:
    silent = [channel.stream_unary(f"/{SERVICE}/ModelInfer")() for _ in range(10)]
    for call in silent:
        await call.wait_for_connection()
    await eventually(lambda: double.budget.lent == ServerLimits().body_memory // 2)
    assert (await infer(channel, floats(1.0))).outputs[0].contents.fp32_contents[0] == 2.0
    await eventually(lambda: double.codes().get(("grpc", "8")) == 2)
    for call in silent:
        call.cancel()
    await eventually(lambda: double.budget.lent == 0)


async def test_what_fails_in_the_model_is_internal_with_an_id_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    reshape = models.model(
        [models.node("Reshape", ["x", "sizes"], ["y"])],
        [models.value("x", models.FLOAT, ["n"])],
        [models.value("y", models.FLOAT, ["a", "b"])],
        [models.integers("sizes", [2, 2])],
    )
    async with serving(reshape) as parts, channel_to(parts) as channel:
        error = await refused(begin(channel, "ModelInfer", asked(floats(1.0, 2.0, 3.0))))
        assert error.code() == Code.INTERNAL
        number = (error.details() or "").partition("error ")[2].partition(";")[0]
        assert len(number) == 8
        assert number in caplog.text
        assert "Reshape" in caplog.text and "Reshape" not in (error.details() or "")


async def test_64_callers_each_get_their_own_answer(channel: grpc.aio.Channel) -> None:
    answers = await asyncio.gather(*(infer(channel, floats(float(index)), id=str(index)) for index in range(64)))
    assert [(one.id, one.outputs[0].contents.fp32_contents[0]) for one in answers] == [
        (str(index), 2.0 * index) for index in range(64)
    ]


async def test_a_server_that_loads_is_live_and_not_ready() -> None:
    async with serving(None) as parts, channel_to(parts) as channel:
        assert messages.ServerLiveResponse.FromString(await begin(channel, "ServerLive", b"")).live
        assert not messages.ServerReadyResponse.FromString(await begin(channel, "ServerReady", b"")).ready
        named = messages.ModelReadyRequest(name=NAME)
        assert not messages.ModelReadyResponse.FromString(await begin(channel, "ModelReady", named)).ready
        error = await refused(begin(channel, "ModelInfer", asked(floats(1.0))))
        assert (error.code(), error.details()) == (Code.UNAVAILABLE, "the model is loading")


async def test_a_pool_member_holds_inferences_until_it_has_its_model() -> None:
    async with serving(None, holds=True) as parts, channel_to(parts) as channel:
        assert messages.ServerReadyResponse.FromString(await begin(channel, "ServerReady", b"")).ready
        held = asyncio.ensure_future(infer(channel, floats(1.0)))
        asks = begin(channel, "ModelMetadata", messages.ModelMetadataRequest(name=NAME))
        await eventually(lambda: parts.pending.waiting == 2)
        assert parts.busy() == (0, 1)
        parts.assign()
        parts.load(models.double())
        parts.pending.resolve(make_nothing)
        assert (await held).outputs[0].contents.fp32_contents[0] == 2.0
        assert messages.ModelMetadataResponse.FromString(await asks).name == NAME
        assert parts.busy() == (0, 0)


async def test_what_was_held_is_told_when_there_will_be_no_model() -> None:
    async with serving(None, holds=True) as parts, channel_to(parts) as channel:
        held = begin(channel, "ModelInfer", asked(floats(1.0)))
        left = begin(channel, "ModelInfer", asked(floats(1.0)))
        await eventually(lambda: parts.pending.waiting == 2)
        left.cancel()
        await eventually(lambda: parts.busy() == (0, 1))
        parts.pending.reject(NotReady("the model could not be loaded here: try again"))
        assert (await refused(held)).code() == Code.UNAVAILABLE


async def test_draining_answers_what_is_in_flight_and_what_still_comes() -> None:
    async with serving(models.slow()) as parts, channel_to(parts) as channel:
        in_flight = asyncio.ensure_future(infer(channel, floats(1.0)))
        await eventually(lambda: parts.busy() == (1, 0))
        draining = asyncio.ensure_future(parts.server.drain(quiet=0.1, limit=5.0))
        late = await infer(channel, floats(2.0))
        assert late.outputs[0].contents.fp32_contents[0] == 4.0
        assert (await in_flight).outputs[0].contents.fp32_contents[0] == 2.0
        await draining
        assert (await refused(begin(channel, "ServerLive", b""))).code() == Code.UNAVAILABLE


async def test_a_port_that_is_taken_is_an_error(double: Parts) -> None:
    second = GrpcServer(double.lifecycle, double.pending, double.budget, double.limits)
    with pytest.raises(CannotListen, match="GRPC_PORT"):
        await second.start(HOST, double.port)
    await second.close()


async def make_nothing(*_: Any) -> None:
    """An ASGI application that is not called: these tests send no HTTP."""
