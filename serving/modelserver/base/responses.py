"""HTTP responses as ASGI messages: small JSON bodies and errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.types import Send

from clusters.net.server.errors import HttpError, error_body

JSON: Final = b"application/json"
BINARY: Final = b"application/octet-stream"
BROKEN_KEY: Final = "knodel.broken"
"""Key of the ASGI scope: the status of an error that occurred after the status of the response was sent."""
RECORDED_KEY: Final = "knodel.recorded"
"""Key of the ASGI scope: present if middleware records the body, all pieces of which then go through `send`."""
_ENCODE: Final = msgspec.json.Encoder().encode


def json_body(content: Any) -> bytes:
    """Return `content` as JSON."""
    return _ENCODE(content)


async def send_error(send: Send, error: HttpError) -> None:
    """Send `error` as a JSON response."""
    await send_body(send, error.status, error_body(str(error)), JSON, error.headers)


async def send_body(
    send: Send, status: int, body: bytes, content_type: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """Send a response with a complete body and its Content-Length."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
