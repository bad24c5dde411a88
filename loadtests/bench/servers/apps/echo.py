"""The floor: a raw ASGI application that answers each request with its own body.

python -m loadtests.bench.servers.apps.echo PORT
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

HEADERS = [(b"content-type", b"application/json")]


async def echo(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer one request."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, length]})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        echo, port=int(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off", access_log=False,
        log_level="warning", server_header=False, date_header=False,
    )  # fmt: skip
