"""Generators of signed events: a closed loop, and an open loop at a fixed rate.

Every response is read, so the number of acknowledged events is exact. The generator takes a tenth of a core.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from clusters.base.api import Cluster
from clusters.base.objects import EVENT_SOURCE, SECRET
from eventing.mapping.training import TYPE

MANAGER = "bench"
HOST = "127.0.0.1"
NAMESPACE = "default"
HOLDER = "bench-key"  # name of the Secret
KEY = bytes(range(32))
SECRET_TEXT = "whsec_" + base64.b64encode(KEY).decode()
SOURCE = "https://ci.example/train"
STORAGE = "s3://models/"
MODELS = 10  # subjects of the events, in turn; they do not exist
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_numbers = count()


def single(path: str = "/events") -> bytes:
    """Return a request with one new event."""
    return _request(path, STRUCTURED, _event(next(_numbers)))


def batch(size: int, path: str = "/events") -> bytes:
    """Return a request with `size` new events."""
    return _request(path, BATCH, [_event(next(_numbers)) for _ in range(size)])


@dataclass
class LoadResult:
    """The result of a load: duration in seconds, CPU seconds of the webhook, number of events acknowledged as new,
    number of responses other than 202, and the latency of each response in seconds.
    """

    seconds: float = 0.0
    busy: float = 0.0
    taken: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Acknowledged events per second."""
        return self.taken / self.seconds

    def note(self, answer: bytes, seconds: float) -> None:
        """Record a response."""
        self.latencies.append(seconds)
        if answer.startswith(b"HTTP/1.1 202 "):
            self.taken += answer.count(b"taken")  # once in a header, or once for each event in the body of a batch
        else:
            self.refused += 1


async def as_fast_as_answered(port: int, requests: Iterable[bytes], connections: int) -> LoadResult:
    """Run a closed loop: each connection sends its next request after a response."""
    outcome, waiting = LoadResult(), iter(requests)

    async def one(connection: _Connection) -> None:
        for request in waiting:
            began = time.perf_counter()
            outcome.note(await connection.ask(request), time.perf_counter() - began)

    async with _connections(port, connections) as opened:
        began = time.perf_counter()
        await asyncio.gather(*map(one, opened))
        outcome.seconds = time.perf_counter() - began
    return outcome


async def at_a_rate(port: int, requests: Iterable[bytes], connections: int, rate: float) -> LoadResult:
    """Run an open loop: a request is due every 1/rate s, without waiting for others. Its latency counts from then."""
    outcome, free = LoadResult(), asyncio.Queue[_Connection]()

    async def one(connection: _Connection, request: bytes, due: float) -> None:
        answer = await connection.ask(request)
        outcome.note(answer, time.perf_counter() - due)
        free.put_nowait(connection)

    async with _connections(port, connections) as opened, asyncio.TaskGroup() as group:
        for connection in opened:
            free.put_nowait(connection)
        began = time.perf_counter()
        for number, request in enumerate(requests):
            due = began + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(await free.get(), request, due))
        for _ in opened:
            await free.get()
        outcome.seconds = time.perf_counter() - began
    return outcome


async def let_in(cluster: Cluster, namespace: str) -> None:
    """Create the EventSource of the load and its Secret."""
    secret = {"metadata": {"name": HOLDER, "namespace": namespace}, "stringData": {"current": SECRET_TEXT}}
    await cluster.create(SECRET, secret, manager=MANAGER)
    spec = {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": HOLDER}}},
        "models": ["*"],
        "storagePrefixes": [STORAGE],
    }
    source = {"metadata": {"name": "bench", "namespace": namespace}, "spec": spec}
    await cluster.create(EVENT_SOURCE, source, manager=MANAGER)


class _Connection(asyncio.Protocol):
    """A kept connection with one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(SystemExit(f"the webhook closed a connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, _, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is not None and len(body) >= int(length[1]):
            answer, self._buffer = self._buffer, b""
            self._answer.set_result(answer)

    async def ask(self, request: bytes) -> bytes:
        """Read one whole response."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """End it."""
        self._answer.cancel()
        self._transport.close()


@asynccontextmanager
async def _connections(port: int, number: int) -> AsyncIterator[list[_Connection]]:
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(_Connection, HOST, port))[1] for _ in range(number)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


def _event(number: int) -> dict[str, Any]:
    data = {
        "model": f"m{number % MODELS}",
        "storageUri": f"{STORAGE}bench/{number}",
        "version": str(number),
        "digest": "sha256:" + hashlib.sha256(b"%d" % number).hexdigest(),
        "modelFormat": "onnx",
        "metrics": {"accuracy": 0.9912, "loss": 0.0331},
    }
    attributes = {"specversion": "1.0", "id": f"run-{number}", "source": SOURCE, "type": TYPE}
    return attributes | {"time": "2026-01-01T12:00:00.123456Z", "datacontenttype": "application/json", "data": data}


def _request(path: str, content_type: str, content: object) -> bytes:
    body, now = json.dumps(content).encode(), int(time.time())
    signature = hmac.new(KEY, f"bench.{now}.".encode() + body, hashlib.sha256).digest()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"webhook-id: bench\r\nwebhook-timestamp: {now}\r\n"
        f"webhook-signature: v1,{base64.b64encode(signature).decode()}\r\n\r\n"
    )
    return head.encode() + body
