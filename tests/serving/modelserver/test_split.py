"""The requests that count for the judge of a rollout, and their statistics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from starlette.types import Message, Receive, Scope, Send

from clusters.base.latency_buckets import LEAST, bucket_of
from clusters.gateway import token as gateway_token
from clusters.gateway.token import VARIABLE
from clusters.net.server.errors import RECEIVED_KEY
from serving.modelserver.base.errors import ClientLeft, DeadlineExceeded, QueueExpired
from serving.modelserver.base.split import (
    PRODUCED_KEY,
    TOKENS_KEY,
    InFlight,
    Outcome,
    SplitStats,
    TokenTimes,
    is_of_split,
    outcome_of,
)
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.middleware import ObservabilityMiddleware
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import parse_reading
from tests.faults.server.process import server_process
from tests.serving.modelserver.client import ask, request, tensor
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.serving.modelserver.grpc_parts import asked, begin, channel_to, floats, serving
from tests.serving.modelserver.streaming import counting_server
from tests.support import models
from tests.support.wait import eventually

SPLIT = {"knative-serving-default-route": "true"}
HEADER = gateway_token.HEADER.lower()
TOKEN = "of-this-pod"
INFER = f"/v2/models/{NAME}/infer"
GOOD = json.dumps({"inputs": [tensor([1.0])]}).encode()


@pytest.mark.parametrize(
    ("headers", "counts"),
    [
        ({"host": "iris.default.localhost", **SPLIT}, True),
        ({"host": "iris.default.svc.cluster.local:80", **SPLIT}, True),
        ({"host": "iris.default.localhost"}, False),  # not by the ingress
        ({"host": "candidate-iris.default.localhost", "knative-serving-tag": "candidate"}, False),
        ({**SPLIT, "knative-serving-tag": "candidate"}, False),  # the caller chose, and forged the other header
        ({"knative-serving-tag": "", **SPLIT}, False),
        ({"knative-serving-default-route": "false"}, False),
        ({"host": "iris.default.localhost-shadow", **SPLIT}, False),  # a mirrored request
        ({"host": "iris.default.localhost-shadow:80", **SPLIT}, False),
        ({}, False),
    ],
)
def test_a_request_counts_when_the_split_chose_the_version(headers: Mapping[str, str], counts: bool) -> None:
    assert is_of_split([(name.encode(), value.encode()) for name, value in headers.items()]) is counts


@pytest.mark.parametrize(
    ("headers", "counts"),
    [
        ({**SPLIT, HEADER: TOKEN}, True),
        ({HEADER: TOKEN, **SPLIT}, True),
        (SPLIT, False),  # straight to the port of the replica
        ({**SPLIT, HEADER: ""}, False),
        ({**SPLIT, HEADER: TOKEN[:-1]}, False),
        ({**SPLIT, HEADER: "of-another-pod"}, False),
        ({HEADER: TOKEN}, False),
        ({**SPLIT, HEADER: TOKEN, "knative-serving-tag": "candidate"}, False),
    ],
)
def test_where_a_gateway_has_a_token_a_request_counts_only_with_it(headers: Mapping[str, str], counts: bool) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert is_of_split(pairs, TOKEN.encode()) is counts


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "answered"),
        (400, "refused"), (404, "refused"), (413, "refused"), (415, "refused"), (429, "refused"),
        (ClientLeft.status, "left"),
        (500, "error"), (503, "error"), (504, "error"),
    ],
)  # fmt: skip
def test_callers_errors_are_told_from_the_models(status: int, outcome: Outcome) -> None:
    assert outcome_of(status) == outcome


def test_times_are_the_models_own() -> None:
    now = 100.0
    split = SplitStats(lambda: now)
    slow_sender = split.begin({}, 0.0)  # its body is not here yet
    slow_reader = split.begin({RECEIVED_KEY: 50.0}, 0.0)
    slow_reader.answered_at = 50.5
    behind_another = split.begin({RECEIVED_KEY: 10.0}, 98.0)
    stream = split.begin({RECEIVED_KEY: 10.0, PRODUCED_KEY: 14.0}, 10.0)
    assert split.to_json()["pending"] == {str(bucket_of(2.0)): 1, str(bucket_of(90.0)): 1}
    assert split.to_json()["oldest"] == 90.0
    split.end(slow_sender, ClientLeft.status, now)
    split.end(slow_reader, 200, now)
    split.end(behind_another, 200, now)
    split.end(stream, 200, now)
    page = split.to_json()
    assert page["latency"] == {str(bucket_of(one)): 1 for one in (0.5, 2.0, 4.0)}
    assert (page["requests"], page["left"], page["pending"], page["oldest"]) == (3, 0, {}, 0.0)


def test_an_answer_with_tokens_has_their_times() -> None:
    now = 100.0
    split = SplitStats(lambda: now)

    def begin(streamed: bool, first: float | None = None, between: float | None = None) -> InFlight:
        tokens = TokenTimes(streamed)
        tokens.first, tokens.between = first, between
        entry = split.begin({RECEIVED_KEY: 10.0, TOKENS_KEY: tokens}, 0.0)
        entry.answered_at = 11.0 if streamed else None  # the head of a stream comes before its first token
        return entry

    waiting, whole = begin(True), begin(False)
    stream, reported = begin(True, 14.0, 0.05), begin(False, 12.0)
    behind_others = begin(True, 14.0)
    behind_others.slot_at = 13.0
    assert split.to_json()["pending"] == {str(bucket_of(90.0)): 1, str(bucket_of(LEAST)): 2}
    assert "interTokenLatency" not in split.to_json()
    for entry in (stream, reported, behind_others, whole):
        split.end(entry, 200, now)
    split.end(waiting, ClientLeft.status, now)
    page = split.to_json()
    assert page["latency"] == {str(bucket_of(one)): 1 for one in (1.0, 2.0, 4.0, 90.0)}
    assert page["interTokenLatency"] == {str(bucket_of(0.05)): 1}
    assert (page["requests"], page["left"], page["untimed"], page["pending"]) == (4, 1, 1, {})
    split.end(begin(False), ClientLeft.status, now)  # how long it waited says nothing about its first token
    split.end(begin(True, 14.0, 0.05), 500, now)
    page = split.to_json()
    assert (page["errors"], page["left"], page["untimed"], page["interTokenLatency"]) == (
        1, 2, 2, {str(bucket_of(0.05)): 1},
    )  # fmt: skip


async def counted(running: Running) -> Counts:
    return parse_reading((await ask(running.management_port, request("GET", "/stats/answers"))).body).totals


async def test_a_server_counts_the_splits_requests_alone(double: Running) -> None:
    for headers in ({}, {**SPLIT, "knative-serving-tag": "candidate"}, {"knative-serving-tag": "candidate"}, SPLIT):
        await ask(double.port, request("POST", INFER, GOOD, **headers))
    for body, path in ((b"{", INFER), (b'{"inputs": [1]}', INFER), (GOOD, "/v2/models/another/infer")):
        await ask(double.port, request("POST", path, body, **SPLIT))
    await ask(double.port, request("GET", "/v2/health/ready", b"", **SPLIT))
    totals = await counted(double)
    assert (totals.requests, totals.errors, totals.timed, totals.refused, totals.left) == (1, 0, 1, 3, 0)


async def test_a_server_with_a_token_counts_what_passed_the_gateway_alone(serve: Serve) -> None:
    running = await serve(models.double(), **{VARIABLE: TOKEN})
    for headers in (SPLIT, {**SPLIT, HEADER: "forged"}, {HEADER: TOKEN}, {**SPLIT, HEADER: TOKEN}):
        answer = await ask(running.port, request("POST", INFER, GOOD, **headers))
        assert (answer.status, TOKEN in str(answer)) == (200, False)
    assert (await counted(running)).requests == 1


async def test_an_application_never_reads_the_token() -> None:
    read: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        read.append(scope["headers"])

    observed = ObservabilityMiddleware(app, RequestMetrics(), None, lambda: 0.0, TOKEN.encode())
    others = [(b"a", b"1"), (b"knative-serving-default-route", b"true")]
    for method in ("POST", "GET"):
        sent = [others[0], (HEADER.encode(), TOKEN.encode()), others[1], (HEADER.encode(), b"forged")]
        scope = {"type": "http", "method": method, "path": INFER, "headers": sent}
        await observed(scope, asyncio.Queue[Message]().get, asyncio.Queue[Message]().put)
    assert read == [others, others]


async def test_the_code_of_a_model_and_the_logs_do_not_have_the_token(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    reads = f"return 0 * x + ('{VARIABLE}' in __import__('os').environ)"
    path.write_bytes(models.code().replace(b"return 4 * x", reads.encode()))
    async with server_process(
        path, tmp_path, "--format", "python", "--allow-code", "--access-log", KNODEL_GATEWAY_TOKEN=TOKEN
    ) as server:
        body = json.dumps({"inputs": [tensor([1.0], "FP64")]}).encode()
        answer = await ask(server.port, request("POST", f"/v2/models/{NAME}/infer", body, **SPLIT, **{HEADER: TOKEN}))
        assert answer.json["outputs"][0]["data"] == [0.0]
        page = await ask(server.management, request("GET", "/stats/answers"))
        await eventually(lambda: INFER in server.log.read_text())
    assert parse_reading(page.body).totals.requests == 1
    assert TOKEN not in server.log.read_text()


async def test_a_request_in_the_model_is_in_flight_and_one_that_is_being_sent_is_not(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1")
    whole, part = await running.connect(), await running.connect()
    await whole.send(request("POST", INFER, GOOD, **SPLIT))
    await part.send(request("POST", INFER, GOOD, **SPLIT)[:-1])

    async def in_flight() -> bool:
        return bool((await counted(running)).in_flight)

    await eventually(in_flight)
    assert (await counted(running)).in_flight == 1
    whole.reset()
    part.reset()

    async def left() -> bool:
        return bool((await counted(running)).left)

    await eventually(left)
    totals = await counted(running)
    assert (totals.requests, totals.errors, totals.left, totals.timed, totals.in_flight) == (0, 0, 1, 1, 0)


async def grpc_call(channel: grpc.aio.Channel, message: Any, headers: Mapping[str, str], timeout: float = 10.0) -> None:
    method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    try:
        await method(message.SerializeToString(), timeout=timeout, metadata=tuple(headers.items()))
    except grpc.aio.AioRpcError:
        return


async def test_over_grpc_the_same_counts() -> None:
    async with serving(models.double()) as parts, channel_to(parts) as channel:
        good, bad = asked(floats(1.0)), asked(floats(1.0, name="unknown"))
        for headers in ({}, {**SPLIT, "knative-serving-tag": "candidate"}, SPLIT):
            await grpc_call(channel, good, headers)
        await grpc_call(channel, bad, SPLIT)
        await begin(channel, "ServerLive", b"")
        await eventually(lambda: sum(parts.codes().values()) == 5)
        page = parts.metrics.split.to_json()
    assert (page["requests"], page["errors"], page["refused"], page["left"]) == (1, 0, 1, 0)


async def test_over_grpc_a_token_is_needed_too() -> None:
    async with serving(models.double(), token=TOKEN.encode()) as parts, channel_to(parts) as channel:
        for headers in (SPLIT, {**SPLIT, HEADER: "forged"}, {**SPLIT, HEADER: TOKEN}):
            await grpc_call(channel, asked(floats(1.0)), headers)
        await eventually(lambda: sum(parts.codes().values()) == 3)
        assert parts.metrics.split.to_json()["requests"] == 1


async def test_over_grpc_a_callers_own_deadline_is_no_error_of_the_model() -> None:
    async with serving(models.slow(), slots=1) as parts, channel_to(parts) as channel:
        await grpc_call(channel, asked(floats(1.0)), SPLIT, timeout=0.05)
        await eventually(lambda: parts.metrics.split.to_json()["left"])
        page = parts.metrics.split.to_json()
    assert (page["requests"], page["errors"], page["left"], page["pending"]) == (0, 0, 1, {})


async def test_a_reader_that_takes_its_time_makes_no_stream_slow() -> None:
    async with counting_server(width=4_000) as server:
        body = json.dumps({"inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [400]}]}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(request("POST", INFER, body, accept="text/event-stream", **SPLIT))
        await eventually(lambda: server.engine.made > 0)
        await asyncio.sleep(0.5)
        assert server.metrics.split.to_json()["pending"] == {}
        assert server.engine.ended == 0  # the model waits for the reader
        while await reader.read(1 << 20):
            if server.engine.ended:
                break
        await eventually(lambda: server.metrics.split.to_json()["requests"])
        writer.close()
    [bucket] = server.metrics.split.to_json()["latency"]
    assert int(bucket) < bucket_of(0.5)


SLEEPING = models.code().replace(b"return 4 * x", b"__import__('time').sleep(3); return 4 * x")
TAGGED = {**SPLIT, "knative-serving-tag": "candidate"}


@pytest.mark.parametrize(("ahead", "errors", "refused"), [(TAGGED, 0, 1), ({}, 0, 1), (SPLIT, 2, 0)])
async def test_a_wait_for_a_slot_is_the_versions_only_behind_requests_of_the_split(
    tmp_path: Path, ahead: Mapping[str, str], errors: int, refused: int
) -> None:
    """An earlier request has the only slot for 3 s; each other request has a timeout of 1 s."""
    path = tmp_path / "m.py"
    path.write_bytes(SLEEPING)
    options = ("--format", "python", "--allow-code", "--slots", "1", "--timeout", "1")
    async with server_process(path, tmp_path, *options) as server:
        body = json.dumps({"inputs": [tensor([1.0], "FP64")]}).encode()
        first = asyncio.create_task(ask(server.port, request("POST", INFER, body, **ahead)))

        async def is_in_the_model() -> bool:
            return bool((await ask(server.management, request("GET", "/stats"))).json["active"])

        await eventually(is_in_the_model)
        assert (await ask(server.port, request("POST", INFER, body, **SPLIT))).status == QueueExpired.status
        assert (await first).status == DeadlineExceeded.status
        totals = parse_reading((await ask(server.management, request("GET", "/stats/answers"))).body).totals
    assert (totals.requests, totals.errors, totals.refused, totals.in_flight) == (errors, errors, refused, 0)
