"""A scripted API server on loopback: it keeps Widgets well, and misbehaves exactly as a test says.

Requests are of three sorts: `list` (a GET of the collection), `watch`, and `other`. Each takes the next step of its
sort's script; without one it is answered as kube-apiserver would. Raw bytes, so that every way to break can be played.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from clusters.base.objects import Object
from tests.contract.widgets import widget

NAMESPACE = "faults"
Sort = str


@dataclass(frozen=True)
class Asked:
    """One request, and when (monotonic seconds) it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float
    reader: asyncio.StreamReader

    @property
    def sort(self) -> Sort:
        """Which script it follows."""
        if self.method == "GET" and self.path.endswith("/widgets"):
            return "watch" if "watch" in self.query else "list"
        return "other"


Step = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class FakeApiServer:
    """Widgets of one namespace, with history, and scripts."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.scripts: dict[Sort, deque[Step]] = {"list": deque(), "watch": deque(), "other": deque()}
        self.always: dict[Sort, Step] = {}
        self.page = 1_000_000
        self.port = 0
        self.open = 0
        self._objects: dict[str, Object] = {}
        self._history: list[tuple[int, str, Object]] = []
        self._version = 100
        self._changed = asyncio.Event()

    def script(self, sort: Sort, *steps: Step) -> None:
        """What the next requests of that sort get."""
        self.scripts[sort].extend(steps)

    def count(self, sort: Sort) -> int:
        """How many requests of that sort came."""
        return sum(asked.sort == sort for asked in self.asked)

    def versions_watched(self) -> list[str]:
        """From where each watch went on."""
        return [asked.query.get("resourceVersion", "") for asked in self.asked if asked.sort == "watch"]

    def put(self, name: str, **spec: Any) -> Object:
        """Create or change a Widget."""
        self._version += 1
        obj = widget(NAMESPACE, name, spec=spec, resourceVersion=str(self._version), uid=f"uid-{name}")
        self._record("MODIFIED" if name in self._objects else "ADDED", obj)
        self._objects[name] = obj
        return obj

    def remove(self, name: str) -> None:
        """Delete a Widget."""
        self._version += 1
        gone = self._objects.pop(name)
        self._record("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}})

    def forget_history(self) -> None:
        """As after a compaction: every older version is gone."""
        self._history.clear()

    def line(self, type: str, obj: Object) -> bytes:
        """A line of a watch."""
        return json.dumps({"type": type, "object": obj}).encode() + b"\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.open += 1
        try:
            while (asked := await self._read(reader)) is not None:
                self.asked.append(asked)
                step = self.scripts[asked.sort].popleft() if self.scripts[asked.sort] else self.always.get(asked.sort)
                await (step or self.well)(asked, writer)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *rest = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        parts = urlsplit(target)
        return Asked(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body, time.monotonic(), reader)

    async def well(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        """Answer as kube-apiserver would."""
        if asked.sort == "watch":
            await self._watch(asked, writer)
        elif asked.sort == "list":
            await answer(200, self._list(asked))(asked, writer)
        elif asked.method == "GET":
            name = asked.path.rpartition("/")[2]
            found = self._objects.get(name)
            await answer(200 if found else 404, found or failure(404, "NotFound", details={"name": name}))(
                asked, writer
            )
        else:
            await answer(200, widget(NAMESPACE, resourceVersion="1"))(asked, writer)

    def _list(self, asked: Asked) -> Object:
        start = int(asked.query.get("continue", "0"))
        end = start + min(int(asked.query.get("limit", self.page)), self.page)
        names = sorted(self._objects)
        metadata: Object = {"resourceVersion": str(self._version)}
        if end < len(names):
            metadata["continue"] = str(end)
        return {"kind": "WidgetList", "metadata": metadata, "items": [self._objects[name] for name in names[start:end]]}

    async def _watch(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        version = int(asked.query["resourceVersion"])
        await begin(writer)
        if version < self._version and (not self._history or self._history[0][0] > version + 1):
            await chunk(writer, self.line("ERROR", failure(410, "Expired", "too old resource version")))
            await end(writer)
            return
        deadline = time.monotonic() + float(asked.query["timeoutSeconds"])
        while (left := deadline - time.monotonic()) > 0:
            for at, change, obj in list(self._history):
                if at > version:
                    await chunk(writer, self.line(change, obj))
                    version = at
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        await chunk(writer, self.line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}}))
        await end(writer)

    def _record(self, type: str, obj: Object) -> None:
        self._history.append((self._version, type, obj))
        self._changed.set()


def failure(code: int, reason: str = "", message: str = "", details: Object | None = None) -> Object:
    """A Status."""
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": details or {},
    }  # fmt: skip


def answer(code: int, body: Object | bytes, **headers: str) -> Step:
    """A whole answer; header names are given with `_` for `-`."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def step(_: Asked, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} X", "Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return step


def refuse(code: int, reason: str = "", message: str = "", **headers: str) -> Step:
    """A Status as answer."""
    return answer(code, failure(code, reason, message), **headers)


def stream(*parts: bytes, then: str = "end") -> Step:
    """A watch of these bytes; then `end` in order, `hang`, `cut` (closed within the body) or `reset`."""

    async def step(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await begin(writer)
        for part in parts:
            await chunk(writer, part)
        if then == "hang":
            await hang(asked, writer)
        else:
            await {"end": end, "cut": _cut, "reset": _reset}[then](writer)

    return step


async def hang(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Silence, until the client goes."""
    await asked.reader.read()
    writer.close()


async def reset(_: Asked, writer: asyncio.StreamWriter) -> None:
    """The connection is reset instead of an answer."""
    await _reset(writer)


async def begin(writer: asyncio.StreamWriter) -> None:
    """The head of a stream."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    await writer.drain()


async def chunk(writer: asyncio.StreamWriter, part: bytes) -> None:
    """A piece of a stream."""
    writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    await writer.drain()


async def end(writer: asyncio.StreamWriter) -> None:
    """The end of a stream, in order."""
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _cut(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@asynccontextmanager
async def fake_api_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApiServer]:
    """A running one."""
    fake = FakeApiServer()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        await fake.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
