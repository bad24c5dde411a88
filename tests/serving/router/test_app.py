"""The router with real sockets, in front of a server that streams, waits or breaks off."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
from typing import Any

import aiohttp
import pytest

from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.language_models import LARGEST_BODY
from tests.clusters.net.openai_bodies import NAMELESS, NOT_JSON, SELECTED, TWICE, UNKNOWN
from tests.serving.router.backend import break_off, hang, hang_up, stream, stub_backend
from tests.serving.router.stage import PATH, Hasty, router
from tests.support.ports import free_port
from tests.support.wait import eventually


def of(model: str = "m", **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], "model": model, **more}).encode()


@pytest.mark.parametrize(
    ("prefix", "namespace"), [("", "default"), ("/namespaces/default", "default"), ("/namespaces/team", "team")]
)
async def test_the_request_reaches_the_models_host_unchanged(
    cluster: EmbeddedCluster, prefix: str, namespace: str
) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:
        headers = {"Authorization": "Bearer key", "X-Request-ID": "42", "Connection": "X-Hop", "X-Hop": "1", "TE": "x"}
        assert await routed.ask(of("m:legal"), f"{prefix}/openai/v1/embeddings?a=%2Fb", headers=headers) == (200, {})
        [received] = backend.requests
        assert received.line == "POST /openai/v1/embeddings?a=%2Fb HTTP/1.1"
        assert received.header("host") == [f"m.{namespace}.svc.cluster.local"]
        assert received.body == of("m:legal")
        assert received.header("authorization") == ["Bearer key"]
        assert received.header("x-request-id") == ["42"]
        assert not [name for name, _ in received.headers if name in ("x-hop", "te", "connection", "transfer-encoding")]


async def test_bodies_are_read_as_the_gateway_reads_them(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:
        for body, _ in SELECTED:
            assert (await routed.ask(body))[0] == 200, body
            assert backend.requests[-1].body == body
        for bodies, status, param, code in (
            ([*NOT_JSON, b""], 400, None, None),
            (NAMELESS, 400, "model", "missing_required_parameter"),
            (TWICE, 400, "model", None),
            ([*UNKNOWN, of("nope"), of("tabular")], 404, "model", "model_not_found"),
        ):
            for body in bodies:
                answered, content = await routed.ask(body)
                error = content["error"]
                assert (answered, error["param"], error["code"]) == (status, param, code), body
                assert error["type"] == "invalid_request_error"
        assert len(backend.requests) == len(SELECTED)


async def test_the_lists_have_the_language_models_of_the_namespace(cluster: EmbeddedCluster) -> None:
    async with router(cluster, free_port()) as routed:
        for prefix, names in (("", ["m", "m:legal"]), ("/namespaces/team", ["m"]), ("/namespaces/none", [])):
            status, listed = await routed.get(f"{prefix}/openai/v1/models")
            assert (status, listed["object"], [one["id"] for one in listed["data"]]) == (200, "list", names)
        status, legal = await routed.get("/openai/v1/models/m:legal")
        assert (status, legal["id"], legal["parent"]) == (200, "m:legal", "m")
        for absent in ("tabular", "nope", "m:nope", "M"):
            status, answer = await routed.get(f"/openai/v1/models/{absent}")
            assert (status, answer["error"]["code"]) == (404, "model_not_found")


async def test_other_paths_and_methods_are_refused(cluster: EmbeddedCluster) -> None:
    async with router(cluster, free_port()) as routed:
        for path in ("/", "/v2", "/openai/v2/models", "/openai/v1x", "/namespaces/a/b/openai/v1/models"):
            assert (await routed.get(path))[0] == 404
        assert (await routed.get(PATH))[0] == 405
        assert (await routed.ask(of(), "/openai/v1/models"))[0] == 405


async def test_events_of_a_stream_arrive_one_by_one(cluster: EmbeddedCluster) -> None:
    async with stub_backend(stream) as backend, router(cluster, backend.port) as routed:
        async with routed.session.post(routed.url(PATH), data=of(stream=True)) as response:
            assert response.content_type == "text/event-stream"
            assert await response.content.readuntil(b"\n\n") == b"data: 1\n\n"
            assert not backend.go_on.is_set(), "the first event came before the second was sent"
            backend.go_on.set()
            assert await response.content.read() == b"data: [DONE]\n\n"
        assert routed.metric("knodel_router_requests_total", status="200") == 1


@pytest.mark.parametrize("behave", [hang, stream])
async def test_a_caller_that_leaves_ends_its_request_at_the_model(cluster: EmbeddedCluster, behave: Any) -> None:
    async with stub_backend(behave) as backend, router(cluster, backend.port) as routed:
        reader, writer = await asyncio.open_connection("127.0.0.1", routed.port)
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(of())}\r\n\r\n"
        writer.write(head.encode() + of())
        async with asyncio.timeout(10):
            await backend.arrived.wait()
            if behave is stream:
                await reader.readuntil(b"data: 1\n\n")
            assert not backend.left.is_set()
            writer.close()
            await backend.left.wait()
        await eventually(lambda: routed.metric("knodel_router_requests_in_progress") == 0)
        assert routed.metric("knodel_router_requests_total", status="left" if behave is hang else "200") == 1


async def test_a_stream_in_progress_is_finished_when_the_replica_ends(cluster: EmbeddedCluster) -> None:
    async with stub_backend(stream) as backend, contextlib.AsyncExitStack() as stack:
        routed = await stack.enter_async_context(router(cluster, backend.port))
        reader, writer = await asyncio.open_connection("127.0.0.1", routed.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(of())}\r\n\r\n".encode() + of())
        await reader.readuntil(b"data: 1\n\n")
        ending = asyncio.create_task(stack.aclose())
        await eventually(lambda: is_closed(routed.port))
        assert not ending.done()
        backend.go_on.set()
        assert b"data: [DONE]" in await asyncio.wait_for(reader.read(), 10), "the rest, and the end of the connection"
        await asyncio.wait_for(ending, 10)
        writer.close()


async def is_closed(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_a_caller_that_leaves_while_it_sends_gives_its_memory_back(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:
        _, writer = await asyncio.open_connection("127.0.0.1", routed.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".encode() + b"x" * 50_000)
        await eventually(lambda: routed.metric("knodel_router_body_bytes") == 50_000)
        writer.close()
        await eventually(lambda: routed.metric("knodel_router_body_bytes") == 0)
        assert not backend.requests


async def test_a_stream_that_breaks_off_breaks_off_for_the_caller(cluster: EmbeddedCluster) -> None:
    async with stub_backend(break_off) as backend, router(cluster, backend.port) as routed:
        async with routed.session.post(routed.url(PATH), data=of()) as response:
            assert await response.content.readuntil(b"\n\n") == b"data: 1\n\n"
            backend.go_on.set()
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await response.content.read()
        assert len(backend.requests) == 1


async def test_a_model_that_hangs_up_is_502_and_not_asked_again(cluster: EmbeddedCluster) -> None:
    async with stub_backend(hang_up) as backend, router(cluster, backend.port) as routed:
        status, answer = await routed.ask(of())
        assert (status, answer["error"]["type"]) == (502, "server_error")
        assert "may have been carried out" in answer["error"]["message"]
        assert len(backend.requests) == 1


async def test_an_ingress_that_cannot_be_reached_is_503_with_retry_after(cluster: EmbeddedCluster) -> None:
    async with router(cluster, free_port()) as routed, routed.session.post(routed.url(PATH), data=of()) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert (await response.json())["error"]["type"] == "server_error"


async def test_a_model_without_a_response_in_time_is_504_and_let_go(cluster: EmbeddedCluster) -> None:
    async with stub_backend(hang) as backend, router(cluster, backend.port, Hasty) as routed:
        assert (await routed.ask(of()))[0] == 504
        await asyncio.wait_for(backend.left.wait(), 10)


async def test_a_prompt_of_ten_megabytes_passes(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:
        body = b'{"prompt": "%s", "model": "m"}' % (b'x\\"y\\\\ {[ ' * 1_000_000)
        assert await routed.ask(io.BytesIO(body)) == (200, {})
        assert backend.requests[0].body == body
        assert routed.metric("knodel_router_body_bytes") == 0


async def test_a_body_above_the_limit_is_413_whether_or_not_its_length_is_known(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:

        async def pieces() -> Any:
            for _ in range((LARGEST_BODY >> 20) + 1):
                yield b" " * (1 << 20)

        reader, writer = await asyncio.open_connection("127.0.0.1", routed.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n".encode())
        assert b" 413 " in await reader.readline()
        writer.close()
        async with routed.session.post(routed.url(PATH), data=pieces()) as response:
            assert response.status == 413
            assert "limit of 32 MiB" in (await response.json())["error"]["message"]
        assert not backend.requests


async def test_bodies_are_limited_together(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port, bodies=1 << 20) as routed:
        _, writer = await asyncio.open_connection("127.0.0.1", routed.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 800000\r\n\r\n".encode() + b"x" * 400_000)
        await eventually(lambda: routed.metric("knodel_router_body_bytes") == 400_000)
        async with routed.session.post(routed.url(PATH), data=of(prompt="x" * 300_000)) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
            assert (await response.json())["error"]["type"] == "rate_limit_error"
        assert (await routed.ask(of()))[0] == 200, "a small body has room"
        writer.close()
        await eventually(lambda: routed.metric("knodel_router_body_bytes") == 0)
        assert (await routed.ask(of(prompt="x" * 300_000)))[0] == 200


async def test_a_compressed_body_is_415(cluster: EmbeddedCluster) -> None:
    async with stub_backend() as backend, router(cluster, backend.port) as routed:
        status, answer = await routed.ask(gzip.compress(of()), headers={"Content-Encoding": "gzip"})
        assert status == 415
        assert "Content-Encoding" in answer["error"]["message"]
        assert not backend.requests
