"""One JSON line for each request, when asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AccessLog:
    """Wraps an application; `monotonic` gives seconds, the lines go to `out`."""

    def __init__(self, app: ASGIApp, monotonic: Callable[[], float], out: TextIO) -> None:
        self._app = app
        self._monotonic = monotonic
        self._out = out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve and then write the line; status 0: there was no answer."""
        start, status = self._monotonic(), 0

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            self._write(scope, status, self._monotonic() - start)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(seconds * 1000, 3),
        }
        self._out.write(msgspec.json.encode(line).decode() + "\n")
        self._out.flush()
