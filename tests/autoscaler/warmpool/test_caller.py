"""The load call over HTTP, against a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.assignment import MemberAssignment, assignment_of
from autoscaler.warmpool.claims.caller import HttpLoadCaller, LoadCallFailed, LoadCallRefused
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from clusters.net.endpoints import Endpoint

ASSIGNMENT = MemberAssignment("iris", {"storageUri": "file:///models/iris", "slots": 4, "revision": "iris-00001"})
ACK = b'{"name": "iris", "state": "LOADING"}'


class Member:
    """A socket that answers every request with these bytes, or does not answer."""

    def __init__(self, answer: bytes | None, *, drip: float = 0.0) -> None:
        self.answer = answer
        self.drip = drip
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        self.requests.append(head + await reader.readexactly(length))
        try:
            await self._answer(writer)
        except ConnectionError:
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if self.answer is None:
            await asyncio.sleep(60)
            return
        for byte in self.answer if self.drip else ():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(self.drip)
        writer.write(b"" if self.drip else self.answer)
        await writer.drain()


def response(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def member(answer: bytes | None, *, drip: float = 0.0) -> AsyncIterator[tuple[Member, Endpoint]]:
    made = Member(answer, drip=drip)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(made.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made, Endpoint("default/small-0001", "127.0.0.1", 1, made.port)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def calling(timeout: float = 2.0) -> AsyncIterator[HttpLoadCaller]:
    caller = HttpLoadCaller(WarmStart(assign_timeout=timeout))
    try:
        yield caller
    finally:
        await caller.close()


async def test_the_call_names_the_model_the_token_and_the_revision() -> None:
    async with member(response("200 OK", ACK)) as (made, endpoint), calling() as caller:
        await caller.load(endpoint, "secret", ASSIGNMENT)
    head, _, body = made.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/repository/models/iris/load HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert json.loads(body) == {
        "parameters": {"storageUri": "file:///models/iris", "slots": 4, "revision": "iris-00001"}
    }


async def test_a_name_is_one_segment_of_the_path() -> None:
    async with member(response("200 OK", ACK)) as (made, endpoint), calling() as caller:
        await caller.load(endpoint, "secret", MemberAssignment("../stats?a=b", ASSIGNMENT.parameters))
    assert made.requests[0].startswith(b"POST /v2/repository/models/..%2Fstats%3Fa=b/load ") or made.requests[
        0
    ].startswith(b"POST /v2/repository/models/..%2Fstats%3Fa%3Db/load ")


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "409 Conflict", "503 Service Unavailable"])
async def test_a_refusal_is_told_with_its_reason(status: str) -> None:
    kind = (
        LoadCallRefused if status.startswith("400") else LoadCallFailed
    )  # a 400 is about what was asked, not about who was
    refused = response(status, b'{"error": "it serves\\nanother model"}')
    async with member(refused) as (_, endpoint), calling() as caller:
        told = rf"default/small-0001: .* answered {status[:3]}: it serves another model"
        with pytest.raises(LoadCallFailed, match=told) as raised:
            await caller.load(endpoint, "secret", ASSIGNMENT)
    assert raised.type is kind


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    async with member(response("200 OK", ACK)) as (other, elsewhere):
        away = f"HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:{elsewhere.management_port}/\r\ncontent-length: 0\r\n\r\n"
        async with member(away.encode()) as (_, endpoint), calling() as caller:
            with pytest.raises(LoadCallFailed, match="answered 307"):
                await caller.load(endpoint, "secret", ASSIGNMENT)
    assert not other.requests


@pytest.mark.parametrize("answer", [None, b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nab"])
async def test_silence_and_nonsense_are_failures_within_the_deadline(answer: bytes | None) -> None:
    async with member(answer) as (_, endpoint), calling(0.1) as caller:
        with pytest.raises(LoadCallFailed, match=r"default/small-0001: .* did not answer"):
            async with asyncio.timeout(5):
                await caller.load(endpoint, "secret", ASSIGNMENT)


async def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    async with member(response("200 OK", ACK), drip=0.05) as (_, endpoint), calling(0.2) as caller:
        with pytest.raises(LoadCallFailed, match="did not answer"):
            async with asyncio.timeout(5):
                await caller.load(endpoint, "secret", ASSIGNMENT)


async def test_a_refusal_in_deep_json_is_a_refusal() -> None:
    async with member(response("500 E", b"[" * 4_000)) as (_, endpoint), calling() as caller:
        with pytest.raises(LoadCallFailed, match=r"answered 500: \[{200}$"):
            await caller.load(endpoint, "secret", ASSIGNMENT)


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    endless = b"HTTP/1.1 500 E\r\ncontent-length: 9999999999\r\n\r\n" + b"x" * 1_000_000
    async with member(endless) as (_, endpoint), calling() as caller:
        with pytest.raises(LoadCallFailed, match=r"answered 500: x{200}$"):
            await caller.load(endpoint, "secret", ASSIGNMENT)


async def test_a_member_that_is_gone_is_a_failure() -> None:
    async with member(None) as (_, endpoint):
        pass
    async with calling() as caller:
        with pytest.raises(LoadCallFailed, match="did not answer"):
            await caller.load(endpoint, "secret", ASSIGNMENT)


def load(text: str) -> MemberAssignment | None:
    return assignment_of({"metadata": {"annotations": {ANNOTATION_LOAD: text}}}, "iris-00001")


def test_the_assignment_is_what_the_template_says_and_the_revision() -> None:
    told = {"name": "iris", "storageUri": "s3://b/iris", "digest": "sha256:0", "modelFormat": "onnx", "slots": 4}
    found = load(json.dumps({**told, "timeout": 300, "cpu": "1", "unknown": {}}))
    assert found is not None
    assert found.name == "iris"
    assert found.parameters == {
        "storageUri": "s3://b/iris", "digest": "sha256:0", "modelFormat": "onnx", "slots": 4, "timeout": 300,
        "cpu": "1", "revision": "iris-00001",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"name": 1, "storageUri": "a"}', '{"name": "a", "storageUri": "a", "slots": []}',
     "[" * 100_000],
)  # fmt: skip
def test_an_assignment_that_cannot_be_read_is_none(text: str) -> None:
    assert load(text) is None


def test_a_template_without_annotations_has_no_assignment() -> None:
    assert assignment_of({"spec": {}}, "iris-00001") is None
