"""An HTTP client that sends exactly the given bytes, and returns the exact response."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.net import unix_sockets

HOST = "127.0.0.1"
PATIENCE = 10.0  # s; the timeout, so that a broken server fails a test
CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """One response; names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body, or its JSON part, as JSON."""
        length = self.headers.get("inference-header-content-length")
        return json.loads(self.body if length is None else self.body[: int(length)])

    @property
    def binary(self) -> bytes:
        """Return the bytes after the JSON part."""
        return self.body[int(self.headers["inference-header-content-length"]) :]

    @property
    def error(self) -> str:
        """Return the message of an error response, also in MLflow's form."""
        message = self.json["message" if "error_code" in self.json else "error"]
        assert isinstance(message, str)
        return message


class Caller:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, place: int | Path) -> Caller:
        """Connect to a local server by its port or Unix socket."""
        if isinstance(place, Path):
            return cls(*await unix_sockets.open_connection(place))
        return cls(*await asyncio.open_connection(HOST, place))

    def write(self, data: bytes) -> None:
        """Write the data without waiting."""
        self._writer.write(data)

    async def send(self, data: bytes) -> None:
        """Send, and wait until the kernel has accepted the data."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, *, whole: bool = False) -> Answer:
        """Return the next response; of a stream only the head, unless `whole`."""
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            if whole and headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self._chunks()])
            else:
                body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(head[0].split()[1]), headers, body)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)

    async def received(self, part: bytes) -> None:
        """Wait until these bytes have come; the bytes up to their end are read."""
        async with asyncio.timeout(PATIENCE):
            await self._reader.readuntil(part)

    async def ended(self) -> bytes:
        """Return the remaining bytes until the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        if self._writer.is_closing():
            return
        taken = self._writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def ask(place: int | Path, request: bytes) -> Answer:
    """Send one request on a new connection."""
    caller = await Caller.connect(place)
    try:
        await caller.send(request)
        return await caller.answer(whole=True)
    finally:
        caller.close()


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request. Keyword arguments become headers, for example `content_type="…"`."""
    lines = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body:
        lines["content-length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def tensor(values: Any, datatype: str = "FP32", shape: list[int] | None = None, name: str = "x") -> dict[str, Any]:
    """Return one input of a v2 request."""
    return {"name": name, "datatype": datatype, "shape": [len(values)] if shape is None else shape, "data": values}
