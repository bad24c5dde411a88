"""Events as a sender signs them, and two ways to send them: as fast as they are answered, or at a fixed rate.

Every answer is read, so that what was acknowledged is known to the event; the generator takes a tenth of a core.
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
HOLDER = "bench-key"  # the Secret
KEY = bytes(range(32))
SECRET_TEXT = "whsec_" + base64.b64encode(KEY).decode()
SOURCE = "https://ci.example/train"
STORAGE = "s3://models/"
MODELS = 10  # that the events are about, in turn; none of them is there
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_numbers = count()


def single(path: str = "/events") -> bytes:
    """A request with an event that nobody has sent yet."""
    return _request(path, STRUCTURED, _event(next(_numbers)))


def batch(size: int, path: str = "/events") -> bytes:
    """A request with `size` of them."""
    return _request(path, BATCH, [_event(next(_numbers)) for _ in range(size)])


@dataclass
class Outcome:
    """What came of a load: seconds it took, processor seconds of the webhook, events acknowledged as new, answers but
    202, seconds of each answer."""

    seconds: float = 0.0
    busy: float = 0.0
    taken: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events acknowledged a second."""
        return self.taken / self.seconds

    def note(self, answer: bytes, seconds: float) -> None:
        """One more answer."""
        self.latencies.append(seconds)
        if answer.startswith(b"HTTP/1.1 202 "):
            self.taken += answer.count(b"taken")  # in a header, or in the body for each of a batch
        else:
            self.refused += 1


async def as_fast_as_answered(port: int, requests: Iterable[bytes], connections: int) -> Outcome:
    """Closed loop: each connection sends its next request when the last one is answered."""
    outcome, waiting = Outcome(), iter(requests)

    async def one(connection: _Connection) -> None:
        for request in waiting:
            began = time.perf_counter()
            outcome.note(await connection.ask(request), time.perf_counter() - began)

    async with _connections(port, connections) as opened:
        began = time.perf_counter()
        await asyncio.gather(*map(one, opened))
        outcome.seconds = time.perf_counter() - began
    return outcome


async def at_a_rate(port: int, requests: Iterable[bytes], connections: int, rate: float) -> Outcome:
    """Open loop: a request is due every 1/rate s, whatever became of those before; its time counts from then on."""
    outcome, free = Outcome(), asyncio.Queue[_Connection]()

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
    """Make the EventSource that the load is sent by, and its key."""
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
    """A kept connection, one request at a time."""

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
        """The whole answer."""
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
