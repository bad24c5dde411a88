"""A raw HTTP/1.1 client, for tests of the bytes on the wire."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from clusters.base.objects import Key
from tests.clusters.activator.bodies import read_body

REVISION = Key("default", "iris-00001")


@dataclass
class Response:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The message of a JSON error."""
        return str(json.loads(self.body)["error"])

    @property
    def timing(self) -> dict[str, float]:
        """The stages of `Server-Timing`, in milliseconds."""
        parts = (part.split(";dur=") for part in self.headers.get("server-timing", "").split(", ") if part)
        return {name: float(duration) for name, duration in parts}


def head(method: str = "POST", target: str = "/v2/models/iris/infer", key: Key = REVISION, **headers: Any) -> bytes:
    """Return a request's head as the gateway sends it. Underscores in names become dashes."""
    named = {
        "host": "iris.default.localhost",
        "knative-serving-namespace": key.namespace,
        "knative-serving-revision": key.name,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items() if value is not None)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Caller:
    """A connection to the activator."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Caller:
        """To `address`."""
        return cls(*await asyncio.open_connection(*address))

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Hang up."""
        self.writer.transport.abort()

    async def post(self, body: bytes = b"", **headers: Any) -> Response:
        """Send a body and take the answer."""
        self.send(body, **headers)
        return await self.answer()

    def send(self, body: bytes = b"", **headers: Any) -> None:
        """Send a request with a length."""
        self.writer.write(head(content_length=len(body), **headers) + body)

    async def answer(self, *, bodyless: bool = False) -> Response:
        """The next answer."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, separator, value = line.partition(":")
            if separator:
                headers[name.lower()] = value.strip()
        status = int(lines[0].split(" ")[1])
        if bodyless:
            return Response(status, headers, b"")
        return Response(status, headers, await read_body(self.reader, headers))
