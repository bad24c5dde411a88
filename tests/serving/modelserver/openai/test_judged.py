"""By which times versions of a language model are judged and scaled: the page /stats/answers over the stub."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import grpc.aio
import pytest

from autoscaler.metrics.response_latency import RecentLatencies, parse_latency_totals
from clusters.base.latency_buckets import LEAST, bucket_of, upper_edge
from clusters.base.objects import Key
from serving.modelserver.base.errors import ClientLeft
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import parse_reading
from tests.serving.modelserver.client import request
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.serving.modelserver.grpc_parts import SERVICE, asked
from tests.serving.modelserver.openai.test_endpoint import CHAT, Start, chat, page
from tests.serving.modelserver.openai.test_endpoint import start as start
from tests.serving.modelserver.openai.test_endpoint import stub as stub
from tests.support.ports import free_port
from tests.support.wait import eventually

SPLIT = {"knative-serving-default-route": "true"}
PAUSE = 0.1
TIMINGS = {"prompt_ms": 40.0, "predicted_ms": 90.0, "predicted_n": 10}


async def answers(server: Running) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(await page(server, "/stats/answers"))
    return read


async def counted(server: Running) -> Counts:
    return parse_reading((await page(server, "/stats/answers")).encode()).totals


async def ask(server: Running, path: str = CHAT, **asked: Any) -> float:
    """Send a request of the split; return how long the whole answer took, in seconds."""
    began = time.monotonic()
    await server.post(chat(**asked), path, **SPLIT)
    return time.monotonic() - began


def least(histogram: Mapping[int, int]) -> float:
    """Return the seconds that the only counted time is above."""
    [(bucket, count)] = histogram.items()
    assert count == 1
    return upper_edge(bucket - 1)


async def test_of_a_stream_the_first_token_counts_and_the_time_between_tokens(start: Start) -> None:
    server = await start()
    whole = await ask(server, stream=True, max_tokens=4, wish={"pause": PAUSE})
    totals = await counted(server)
    assert (totals.requests, totals.errors, totals.left) == (1, 0, 0)
    assert least(totals.latency) <= whole - 3 * PAUSE  # the last three tokens come after the first one
    assert least({bucket + 1: count for bucket, count in totals.between_tokens.items()}) >= PAUSE
    [bucket] = (await answers(server))["latency"]  # of all requests, for the autoscaler
    assert abs(int(bucket) - min(totals.latency)) <= 1


async def test_of_a_generated_stream_the_same_counts(start: Start) -> None:
    server = await start()
    asked = {"text_input": json.dumps({"pause": PAUSE}), "max_tokens": 4}
    began = time.monotonic()
    answer = await server.post(asked, f"/v2/models/{NAME}/generate_stream", **SPLIT)
    whole = time.monotonic() - began
    assert answer.status == 200
    totals = await counted(server)
    assert (totals.requests, totals.errors, totals.left) == (1, 0, 0)
    assert least(totals.latency) <= whole - 3 * PAUSE
    assert least({bucket + 1: count for bucket, count in totals.between_tokens.items()}) >= PAUSE * 0.9
    [bucket] = (await answers(server))["latency"]
    assert abs(int(bucket) - min(totals.latency)) <= 1


@pytest.mark.parametrize("path", [f"/v2/models/{NAME}/generate", f"/v2/models/{NAME}/infer"])
async def test_a_completion_by_the_inference_protocol_has_no_time(start: Start, path: str) -> None:
    """It takes as long as the caller's max_tokens, and nobody sees its first token."""
    server = await start()
    inputs = [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}]
    answer = await server.post({"text_input": "hi"} if path.endswith("generate") else {"inputs": inputs}, path, **SPLIT)
    assert answer.status == 200
    totals, read = await counted(server), await answers(server)
    assert totals == Counts(requests=1)
    assert (read["requests"], read["latency"], read["split"]["untimed"]) == (1, {}, 1)


async def test_a_completion_over_grpc_has_no_time(serve: Serve, stub: None) -> None:
    port = free_port()
    server = await serve(b" ", "--format", "stub", GRPC_PORT=str(port))
    text = {"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"hi"]}}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        await call(asked(text).SerializeToString(), metadata=tuple(SPLIT.items()), timeout=30)
    totals, read = await counted(server), await answers(server)
    assert totals == Counts(requests=1)
    assert (read["requests"], read["latency"], read["split"]["untimed"]) == (1, {}, 1)


async def test_a_latency_objective_is_held_to_the_first_token(start: Start) -> None:
    server, recent, key = await start(), RecentLatencies(), Key("default", "m")
    for now in (0.0, 1.0):
        totals = parse_latency_totals((await page(server, "/stats/answers")).encode())
        seconds, number = recent.add(key, {"pod": totals}, frozenset({"pod"}), now)
        if not now:
            whole = await ask(server, stream=True, max_tokens=4, wish={"pause": PAUSE})
    assert number == 1
    assert seconds / 2 ** (1 / 8) <= whole - 3 * PAUSE


async def test_an_answer_that_is_no_stream_has_the_times_that_the_engine_reports(start: Start) -> None:
    server = await start()
    whole = await ask(server, max_tokens=3, wish={"timings": TIMINGS, "pause": PAUSE})
    totals = await counted(server)
    assert bucket_of(0.04) <= min(totals.latency)
    assert least(totals.latency) <= whole - (3 * PAUSE - 0.04)
    assert totals.between_tokens == {bucket_of(0.01): 1}


@pytest.mark.parametrize("wish", [None, {"timings": {"prompt_ms": "soon"}}, {"timings": {"prompt_ms": 3.0}}])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/messages"])
async def test_an_answer_that_is_no_stream_has_no_time_otherwise(start: Start, path: str, wish: Any) -> None:
    server = await start()
    await ask(server, path, wish=wish)
    totals, read = await counted(server), await answers(server)
    assert totals == Counts(requests=1)
    assert (read["requests"], read["errors"], read["latency"], read["split"]["untimed"]) == (1, 0, {}, 1)


async def test_a_stream_without_a_token_has_no_time(start: Start) -> None:
    server = await start()
    await ask(server, stream=True, max_tokens=0)
    assert await counted(server) == Counts(requests=1)


async def test_what_makes_no_tokens_is_timed_as_any_inference(start: Start) -> None:
    server = await start()
    await ask(server, "/v1/messages/count_tokens")
    totals = await counted(server)
    assert (totals.requests, totals.timed, totals.between_tokens) == (1, 1, {})
    assert sum((await answers(server))["latency"].values()) == 1


async def test_errors_count_as_those_of_other_protocols(start: Start) -> None:
    server = await start()
    for status in (400, 404, 413, 429, 500, 503):
        await ask(server, wish={"status": status})
    await ask(server, stream=True, wish={"error": 1})
    totals, read = await counted(server), await answers(server)
    assert (totals.requests, totals.errors, totals.refused, totals.timed) == (3, 3, 4, 0)
    assert (read["requests"], read["errors"], read["latency"]) == (5, 5, {})  # 404 and 413 count for no version


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_waits_for_a_slot_and_leaves(start: Start, stream: bool) -> None:
    """Only of a stream is the time that it waited a lower bound of the time to the first token."""
    server = await start("--slots", "1")
    first, second = await server.connect(), await server.connect()
    await first.send(request("POST", CHAT, json.dumps(chat(stream=True, wish={"endless": True})).encode(), **SPLIT))

    async def has_begun() -> bool:
        return bool((await server.stats())["active"]) and not (await counted(server)).in_flight

    await eventually(has_begun)  # a stream is in flight until its first token
    await second.send(request("POST", CHAT, json.dumps(chat(stream=stream)).encode(), **SPLIT))

    async def waits() -> bool:
        pending = (await counted(server)).pending
        return bool(pending) and (max(pending) > bucket_of(LEAST)) == stream

    await eventually(waits)
    second.reset()

    async def left() -> bool:
        return (await counted(server)).left == 1

    await eventually(left)
    totals = await counted(server)
    assert (totals.requests, totals.timed, totals.in_flight) == (0, int(stream), 0)
    assert f'code="{ClientLeft.status}"' in await page(server)
    first.reset()


async def test_a_caller_that_leaves_between_two_tokens(start: Start) -> None:
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps(chat(stream=True, wish={"endless": True})).encode()
    writer.write(request("POST", CHAT, body, **SPLIT))
    await reader.readuntil(b"w3 ")
    writer.transport.abort()

    async def left() -> bool:
        return (await counted(server)).left == 1

    await eventually(left)
    totals = await counted(server)
    assert (totals.requests, totals.timed, sum(totals.between_tokens.values())) == (0, 1, 1)


async def test_a_caller_that_does_not_read_makes_no_tokens_slow(start: Start) -> None:
    """The answer does not fit into the buffers; the deadline ends it while the server waits for the caller."""
    server = await start("--timeout", "3")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    body = json.dumps(chat(stream=True, max_tokens=1_000_000)).encode()
    writer.write(request("POST", CHAT, body, **SPLIT))

    async def left() -> bool:
        return (await counted(server)).left == 1

    await eventually(left)
    totals = await counted(server)
    writer.transport.abort()
    assert (totals.timed, totals.between_tokens) == (1, {})
    assert not reader.at_eof()
