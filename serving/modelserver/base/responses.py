"""HTTP responses as ASGI messages: small JSON bodies and errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.types import Send

from serving.modelserver.base.errors import ServingError, Unauthorized

JSON: Final = b"application/json"
BINARY: Final = b"application/octet-stream"
_ENCODE: Final = msgspec.json.Encoder().encode


def json_body(content: Any) -> bytes:
    """Return `content` as JSON."""
    return _ENCODE(content)


def error_body(message: str) -> bytes:
    """Return the JSON body of an error: `{"error": message}`."""
    return json_body({"error": message})


def error_headers(error: ServingError) -> list[tuple[bytes, bytes]]:
    """Return the extra headers of an error response: Retry-After or WWW-Authenticate."""
    if error.retry_after is not None:
        return [(b"retry-after", b"%d" % error.retry_after)]
    return [(b"www-authenticate", b"Bearer")] if isinstance(error, Unauthorized) else []


async def send_error(send: Send, error: ServingError) -> None:
    """Send `error` as a JSON response."""
    await send_body(send, error.status, error_body(str(error)), JSON, error_headers(error))


async def send_body(
    send: Send, status: int, body: bytes, content_type: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """Send a response with a complete body and its Content-Length."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
