"""Bad HTTP at a real cluster's ingress, byte for byte: refused there or at queue-proxy, and never a second request.

Through Kourier (Envoy) and Knative's queue-proxy (Go's net/http) to a model server. Whatever the answer, the model
must not see a request that the sender hid in another one's body, and what follows on other connections is served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import MODEL, is_true
from serving.types.settings.settings import Settings
from tests.cluster.test_kills import SMALL
from tests.scenarios.world import infer_body, model
from tests.support.artifacts import ArtifactServer
from tests.support.kourier import find_kourier
from tests.support.wait import eventually

MANAGER = "tests"
NAME = "framed"
WITHIN = 120.0  # s for a start
ANSWER_WITHIN = 10.0  # s; a connection that stays open is listened to for as long: nothing more may be answered
PATH = f"/v2/models/{NAME}/infer"
HIDDEN = f"GET /v2/models/{NAME}/hidden HTTP/1.1\r\nHost: HOST\r\n\r\n".encode()
"""A request of its own, in the place of a body."""
REFUSED = frozenset({*range(400, 500), 501})
"""501: Envoy, of a transfer coding that it does not know."""
CLOSED = 0
"""In the place of a status: closed without an answer."""


def post(headers: str, body: bytes) -> bytes:
    """A request whose framing is as bad as its headers say."""
    return f"POST {PATH} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n{headers}\r\n".encode() + body


def get(headers: str, target: str = "/v2/health/live") -> bytes:
    """A request without a body."""
    return f"GET {target} HTTP/1.1\r\n{headers}\r\n".encode()


CHUNKED = "Transfer-Encoding: chunked\r\n"
BAD: Mapping[str, bytes] = MappingProxyType({
    "length and chunks": post(f"Content-Length: {5 + len(HIDDEN)}\r\n{CHUNKED}", b"0\r\n\r\n" + HIDDEN),
    "chunks and length": post(f"{CHUNKED}Content-Length: 4\r\n", b"1\r\nx\r\n0\r\n\r\n" + HIDDEN),
    "two lengths": post(f"Content-Length: 2\r\nContent-Length: {2 + len(HIDDEN)}\r\n", b"{}" + HIDDEN),
    "a length with a sign": post("Content-Length: +2\r\n", b"{}"),
    "a negative length": post("Content-Length: -2\r\n", b"{}"),
    "a bad chunk size": post(CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a bad chunk end": post(CHUNKED, b"2\r\n{}X\r\n0\r\n\r\n" + HIDDEN),
    "another coding": post("Transfer-Encoding: identity, chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    "a hidden coding": post("Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + HIDDEN),
    "no host": get(""),
    "two hosts": get("Host: HOST\r\nHost: other\r\n"),
    "a space before the colon": get("Host: HOST\r\nContent-Length : 5\r\n"),
    "a null byte": get("Host: HOST\r\nX-A: a\0b\r\n"),
    "headers of 200 kB": get(f"Host: HOST\r\nX-A: {'a' * 200_000}\r\n"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Door:
    """Where requests come in, and the host of the model."""

    address: str
    port: int
    host: str

    async def send(self, request: bytes) -> list[int]:
        """The statuses of all answers until the connection is closed, or nothing more comes."""
        reader, writer = await asyncio.open_connection(self.address, self.port)
        try:
            writer.write(request.replace(b"HOST", self.host.encode()))
            return [status async for status in _statuses(reader)] or [CLOSED]
        finally:
            writer.transport.abort()

    async def infer(self, **headers: str) -> dict[str, Any]:
        """A good request; what the model answers."""
        body = json.dumps(infer_body(1.0)).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        reader, writer = await asyncio.open_connection(self.address, self.port)
        try:
            request = post(f"Content-Length: {len(body)}\r\nConnection: close\r\n{lines}", body)
            writer.write(request.replace(b"HOST", self.host.encode()))
            async with asyncio.timeout(ANSWER_WITHIN):
                head, _, content = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            answer: dict[str, Any] = json.loads(content)
            return answer
        finally:
            writer.transport.abort()


async def _statuses(reader: asyncio.StreamReader) -> AsyncIterator[int]:
    """Of each status line that comes; a body has none."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            while line := await reader.readline():
                if line.startswith(b"HTTP/1.1 "):
                    yield int(line.split(b" ")[1])
    except (TimeoutError, ConnectionError, ValueError):
        return


@asynccontextmanager
async def door(cluster: Cluster, namespace: str, artifacts: ArtifactServer) -> AsyncIterator[Door]:
    """A model behind Kourier."""
    made = model(NAME, namespace, storageUri=artifacts.uri("double"), **SMALL)
    await cluster.create(MODEL, made, manager=MANAGER)

    async def ready() -> bool:
        return is_true(await cluster.get(MODEL, NAME, namespace), "Ready")

    await eventually(ready, WITHIN)
    kourier = await find_kourier(cluster)
    url = urlsplit(kourier.url)
    yield Door(str(url.hostname), url.port or 80, f"{NAME}.{namespace}.{kourier.domain}")


@pytest.fixture
async def framed(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> AsyncIterator[Door]:
    """A door to a model that is warm."""
    async with door(cluster, namespace, artifacts) as made:
        yield made


async def test_bad_framing_is_refused_and_hides_no_second_request(framed: Door) -> None:
    said = await asyncio.gather(*(framed.send(request) for request in BAD.values()))
    answers = dict(zip(BAD, said, strict=True))
    print("\n".join(f"{name}: {statuses}" for name, statuses in answers.items()))

    assert {name: found for name, found in answers.items() if not _is_refused(found)} == {}
    assert (await framed.infer())["outputs"][0]["data"] == [2.0]


def _is_refused(statuses: list[int]) -> bool:
    """One answer for one connection, and it is a refusal."""
    return len(statuses) == 1 and (statuses[0] == CLOSED or statuses[0] in REFUSED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Knative-Serving-Revision", "other-00001"),
        ("Knative-Serving-Namespace", "kube-system"),
        ("X-Forwarded-Host", "other"),
        ("Connection", "close, content-length, x-internal"),
    ],
)
async def test_headers_of_the_platform_from_outside_change_nothing_for_the_model(
    framed: Door, name: str, value: str
) -> None:
    """Knative's probe headers apart: its queue-proxy answers those itself, from wherever they come."""
    assert (await framed.infer(**{name: value}))["outputs"][0]["data"] == [2.0]
