"""One address of all language models of a namespace, through a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import Key
from clusters.gateway.envoy import ACCESS_LOG, Envoy
from clusters.gateway.ingress import virtual_hosts
from clusters.gateway.limits import DEFAULTS
from clusters.gateway.openai_script import MOST_HELD
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Table
from clusters.net.language_models import LARGEST_BODY, MOST_MEMBERS, LanguageModel, ModelNotSelected, select
from serving.modelserver.base.split import is_of_split
from tests.clusters.gateway.backends import Answer, Backend, ask, read_answer
from tests.clusters.gateway.ingresses import ingress
from tests.clusters.gateway.tables import ONE, TWO, table
from tests.clusters.net.openai_bodies import NAMELESS, NOT_JSON, SELECTED, TWICE, UNKNOWN
from tests.support.ports import free_port
from tests.support.wait import eventually

PATH = "/openai/v1/chat/completions"
OTHER = Key("team", "m-00001")


async def post(port: int, body: bytes, path: str = PATH, **more: Any) -> Answer:
    return await ask(port, path, "127.0.0.1", method="POST", body=body, **more)


def of(model: str = "m", **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], "model": model, **more}).encode()


def error(answer: Answer) -> Mapping[str, Any]:
    assert list(answer.json) == ["error"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}
    found: Mapping[str, Any] = answer.json["error"]
    return found


@pytest.mark.parametrize(("body", "name"), SELECTED)
async def test_the_body_selects_the_model_and_reaches_it_unchanged(
    served: int, first: Backend, body: bytes, name: str
) -> None:
    answer = await post(served, body)
    assert (name, answer.json) == ("m", {"backend": "first", "bytes": len(body)})
    assert await first.requests[-1].read() == body


@pytest.mark.parametrize("path", [PATH, "/openai/v1/embeddings?a=b", "/openai/v1/responses", "/openai/v1"])
async def test_the_path_reaches_the_model_without_the_namespace(served: int, first: Backend, path: str) -> None:
    for prefix in ("", "/namespaces/default"):
        assert (await post(served, of("m:legal"), prefix + path)).status == 200
        received = first.requests[-1]
        assert received.path_qs == path
        assert not [name for name in received.headers if name.lower().startswith("knodel-internal")]


async def test_the_namespace_in_the_path_is_that_of_the_model(gateway: Envoy, first: Backend, second: Backend) -> None:
    hosts = tuple(
        host
        for namespace in ("default", "team")
        for host in virtual_hosts(ingress("m", {"m-00001": 100}, namespace=namespace), lambda revision: 30.0)
    )
    await gateway.apply(Table(hosts, {ONE: (first.address,), OTHER: (second.address,)}))
    assert (await post(gateway.port, of())).json["backend"] == "first"
    assert (await post(gateway.port, of(), "/namespaces/team" + PATH)).json["backend"] == "second"
    assert error(await post(gateway.port, of(), "/namespaces/nope" + PATH))["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("bodies", "status", "param", "code"),
    [
        ([*NOT_JSON, b""], 400, None, None),
        (NAMELESS, 400, "model", "missing_required_parameter"),
        (TWICE, 400, "model", None),
        ([*UNKNOWN, of("nope"), of("nope:m")], 404, "model", "model_not_found"),
    ],
)
async def test_what_selects_no_model_is_refused_in_openais_form(
    served: int, first: Backend, bodies: list[bytes], status: int, param: str | None, code: str | None
) -> None:
    for body in bodies:
        answer = await post(served, body)
        found = error(answer)
        assert (answer.status, found["param"], found["code"]) == (status, param, code), body
        assert found["type"] == "invalid_request_error"
    assert not first.requests


async def test_an_absent_model_is_named(served: int) -> None:
    assert "'nope'" in error(await post(served, of("nope:legal")))["message"]
    assert "'No pe?'" in error(await post(served, of("No pe\x07")))["message"]


async def test_errors_of_the_gateway_at_these_paths_have_openais_form(gateway: Envoy, first: Backend) -> None:
    await gateway.apply(table({}, {}))
    for answer in (await post(gateway.port, of()), await ask(gateway.port, PATH, "m.default.localhost")):
        assert (answer.status, error(answer)["type"], answer.headers["retry-after"]) == (503, "server_error", "1")
    by_path = await ask(gateway.port, "/namespaces/default/models/nope" + PATH, "127.0.0.1")
    assert (by_path.status, error(by_path)["code"]) == (404, "model_not_found")
    other = await ask(gateway.port, "/v2/models/m/infer", "127.0.0.1")
    assert isinstance(other.json["error"], str)


async def test_a_model_that_is_cluster_local_is_absent(gateway: Envoy, first: Backend) -> None:
    local = ingress("m", {"m-00001": 100})
    local["spec"]["rules"] = [rule for rule in local["spec"]["rules"] if rule["visibility"] == "ClusterLocal"]
    listed = (LanguageModel("default", "m"),)
    await gateway.apply(Table(virtual_hosts(local, lambda revision: 30.0), {ONE: (first.address,)}, models=listed))
    assert error(await post(gateway.port, of()))["code"] == "model_not_found"
    assert (await ask(gateway.port, "/openai/v1/models", "127.0.0.1")).json["data"] == []


async def test_the_traffic_is_split_and_counts_for_the_judge(gateway: Envoy, first: Backend, second: Backend) -> None:
    backends = {ONE: (first.address,), TWO: (second.address,)}
    await gateway.apply(table({"m-00001": 50, "m-00002": 50}, backends, tags={"blue": "m-00002"}))
    for _ in range(40):
        assert (await post(gateway.port, of())).status == 200
    assert first.requests
    assert second.requests
    marks = [(name.lower().encode(), value.encode()) for name, value in first.requests[0].headers.items()]
    assert is_of_split(marks)
    answer = await post(gateway.port, of(), headers={"Knative-Serving-Tag": "blue"})
    assert answer.json["backend"] == "second"
    tagged = [(name.lower().encode(), value.encode()) for name, value in second.requests[-1].headers.items()]
    assert not is_of_split(tagged)


async def test_a_model_at_zero_is_reached_through_the_activator(gateway: Envoy, first: Backend) -> None:
    await gateway.apply(table({"m-00001": 100}, {}, activator=replace(first.address, token="of the activator")))
    assert (await post(gateway.port, of())).json["backend"] == "first"
    received = first.requests[0].headers
    assert received["Knative-Serving-Revision"] == "m-00001"
    assert "of the activator" in received.values()


async def test_the_model_may_come_after_a_prompt_of_ten_megabytes(served: int) -> None:
    body = b'{"prompt": "%s", "model": "m"}' % (b'x\\"y\\\\ {[ ' * 1_000_000)
    assert (await post(served, body)).json["bytes"] == len(body) > 10_000_000


async def test_a_body_above_the_limit_is_413_before_it_is_sent_and_when_its_length_is_unknown(served: int) -> None:
    assert 10_000_000 < LARGEST_BODY < DEFAULTS.body_bytes
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    writer.write(f"{head}Content-Length: {LARGEST_BODY + 1}\r\n\r\n".encode())
    early = await read_answer(reader)
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    piece = b"x" * (1 << 20)
    for _ in range((LARGEST_BODY >> 20) + 1):
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    late = await read_answer(reader)
    writer.close()
    for answer in (early, late):
        assert answer.status == 413
        assert "limit of 32 MiB" in error(answer)["message"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_chunked_body_selects_the_model(served: int, size: int) -> None:
    body = of(prompt="x" * 1000)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces(body, size)) + b"0\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    for piece in pieces(chunks, 1500):
        writer.write(piece)
        await writer.drain()
    assert (await read_answer(reader)).json == {"backend": "first", "bytes": len(body)}
    writer.close()


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


async def test_a_caller_that_waits_for_100_continue_gets_it(served: int) -> None:
    body = of()
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    expects = f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n{expects}".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(body)
    assert (await read_answer(reader)).json["backend"] == "first"
    writer.close()


async def test_a_compressed_body_is_415_in_clear_words(served: int, first: Backend) -> None:
    answer = await post(served, gzip.compress(of()), headers={"Content-Encoding": "gzip"})
    assert (answer.status, error(answer)["type"]) == (415, "invalid_request_error")
    assert "Content-Encoding" in error(answer)["message"]
    assert not first.requests
    assert (await post(served, of(), headers={"Content-Encoding": "identity"})).status == 200


async def test_other_methods_than_post_are_405(served: int, first: Backend) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await ask(served, PATH, "127.0.0.1", method=method, body=of())
        assert (answer.status, error(answer)["type"]) == (405, "invalid_request_error")
        assert "by POST" in error(answer)["message"]
    assert not first.requests


async def test_a_body_of_a_million_members_is_refused_at_once(served: int) -> None:
    many = b",".join(b'"%d":1' % number for number in range(MOST_MEMBERS))
    assert (await post(served, b'{%s,"model":"m"}' % many)).status == 400
    assert (await post(served, b'{"a":{%s},"model":"m"}' % many)).status == 200


@contextlib.asynccontextmanager
async def streaming() -> AsyncIterator[tuple[Address, asyncio.Event]]:
    """A server that sends one event of a stream and waits; the event is set when its caller left."""
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        while await reader.read(1024):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1]), left


async def test_a_stream_is_passed_on_piece_by_piece_and_its_caller_can_leave(gateway: Envoy) -> None:
    async with streaming() as (address, left):
        await gateway.apply(table({"m-00001": 100}, {ONE: (address,)}))
        body = of(stream=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(5):
            await reader.readuntil(b"data: 1\n\n")  # the backend sends no more
            writer.close()
            await left.wait()


async def test_bodies_are_limited_together_and_their_room_comes_back(served: int) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {LARGEST_BODY}\r\n\r\n".encode()
    held = []
    for _ in range(MOST_HELD // LARGEST_BODY):  # declared, and never sent
        _, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(head + b"{")
        held.append(writer)

    async def full() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(head)
        try:
            async with asyncio.timeout(0.5):
                answer = await read_answer(reader)
        except TimeoutError:
            return False
        finally:
            writer.close()
        assert error(answer)["type"] == "server_error"
        return (answer.status, answer.headers["retry-after"]) == (503, "1")

    await eventually(full)
    assert (await post(served, of())).status == 200, "a small body needs no room"
    for writer in held:
        writer.close()

    async def has_room() -> bool:
        return (await post(served, of(prompt="x" * 1_000_000))).status == 200

    await eventually(has_room)


async def test_the_lists_are_answered_by_the_gateway_alone(gateway: Envoy) -> None:
    hosts = tuple(
        host
        for name in ("m", "a")
        for host in virtual_hosts(ingress(name, {f"{name}-00001": 100}), lambda revision: 30.0)
    )
    models = (LanguageModel("default", "m", 5, ("legal",)), LanguageModel("default", "a"), LanguageModel("team", "m"))
    await gateway.apply(Table(hosts, {}, models=models))

    async def get(path: str, **more: Any) -> Answer:
        return await ask(gateway.port, path, "127.0.0.1", **more)

    for prefix in ("", "/namespaces/default"):
        listed = await get(f"{prefix}/openai/v1/models?limit=1")
        assert (listed.status, listed.json["object"]) == (200, "list")
        assert [one["id"] for one in listed.json["data"]] == ["a", "m", "m:legal"]
        assert listed.headers["content-type"] == "application/json"
        legal = await get(f"{prefix}/openai/v1/models/m:legal")
        assert legal.json == {"id": "m:legal", "object": "model", "created": 5, "owned_by": "knodel", "parent": "m"}
    assert (await get("/namespaces/team/openai/v1/models")).json == {"object": "list", "data": []}
    for absent in ("/openai/v1/models/nope", "/namespaces/team/openai/v1/models/m"):
        answer = await get(absent)
        assert (answer.status, error(answer)["code"]) == (404, "model_not_found")
    assert (await get("/openai/v1/models", method="POST", body=of())).status == 405
    await gateway.apply(Table(hosts, {}, models=models[1:]))
    assert [one["id"] for one in (await get("/openai/v1/models")).json["data"]] == ["a"]


async def test_a_list_may_be_long(gateway: Envoy) -> None:
    names = [f"m{number}" for number in range(300)]
    hosts = tuple(
        host for name in names for host in virtual_hosts(ingress(name, {f"{name}-00001": 100}), lambda revision: 30.0)
    )
    await gateway.apply(Table(hosts, {}, models=tuple(LanguageModel("default", name) for name in names)))
    listed = await ask(gateway.port, "/openai/v1/models", "127.0.0.1")
    assert {one["id"] for one in listed.json["data"]} == set(names)


async def test_a_page_of_another_origin_is_refused_in_openais_form(tmp_path: Path) -> None:
    limits = replace(DEFAULTS, hosts=("127.0.0.1",))
    gateway = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock(), limits)
    await gateway.start()
    try:
        await gateway.apply(Table())
        answer = await post(gateway.port, of(), headers={"Origin": "http://evil.example"})
        assert (answer.status, error(answer)["param"]) == (403, None)
    finally:
        await gateway.stop(grace=0.0)


async def test_the_access_log_has_the_path_of_the_caller(served: int, gateway: Envoy) -> None:
    await post(served, of(), "/namespaces/default" + PATH + "?key=secret")

    def lines() -> list[Any]:
        return [json.loads(line) for line in (gateway.folder / ACCESS_LOG).read_text().splitlines()]

    await eventually(lambda: bool(lines()))
    assert lines()[-1]["path_form"] == "/namespaces/default" + PATH
    assert "secret" not in (gateway.folder / ACCESS_LOG).read_text()


async def test_damaged_bodies_select_what_the_router_on_kubernetes_selects(served: int, first: Backend) -> None:
    """Both read the same Model. Only errors inside nested values are left to the model server."""
    generator = random.Random(7)
    sources = [body for body, _ in SELECTED] + NAMELESS + TWICE
    parts = [
        b'"model"',
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"m",
        b" ",
        b"1",
        b'"a":',
        b"\\u006d",
        b"\xff",
    ]
    forwarded = 0
    for _ in range(400):
        body = bytearray(generator.choice(sources))
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(body) + 1)
            body[at : at + generator.choice((0, 0, 1, 3))] = generator.choice(parts)
        status = (await post(served, bytes(body))).status
        try:
            wanted = 200 if select(bytes(body)).name == "m" else 404
        except ModelNotSelected as refused:
            wanted = refused.status
            if status == 200:
                assert "not a JSON object" in str(refused), body
                continue
        assert status == wanted or (wanted == 400 and status == 404), body
        forwarded += status == 200
    assert 20 < forwarded < 380
