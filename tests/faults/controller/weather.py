"""What stands before an API server and makes it unreachable, in several ways, with a book of who asked when."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from starlette.types import ASGIApp, Receive, Scope, Send

Kind = Literal["fine", "503", "429", "cut"]
BACK_AFTER = 2
"""s: the Retry-After of 429."""


class Weather:
    """An ASGI application around another. `kind` may be changed at any time; `asked` has what came in bad weather."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.kind: Kind = "fine"
        self.asked: dict[str, list[float]] = defaultdict(list)
        self._clock = clock
        self._app: ASGIApp | None = None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Stand before `app`."""
        self._app = app
        return self

    def shortest_gap(self) -> float:
        """Seconds between two requests for one object, at least."""
        return min(
            (later - earlier for moments in self.asked.values() for earlier, later in pairwise(moments)),
            default=float("inf"),
        )

    def forget(self, plural: str) -> None:
        """Leave out what was asked for objects of this kind: a Lease is asked for as a lead is about to be lost."""
        for what in [what for what in self.asked if plural in what]:
            del self.asked[what]

    def most(self) -> tuple[str, int]:
        """What was asked for most, and how often."""
        return max(((what, len(moments)) for what, moments in self.asked.items()), key=lambda one: one[1])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None or self.kind == "fine" or scope["type"] != "http":
            if self._app is not None:
                await self._app(scope, receive, send)
            return
        self.asked[f"{scope['method']} {scope['path']}"].append(self._clock())
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
        status = 200 if self.kind == "cut" else int(self.kind)
        if self.kind == "429":
            headers.append((b"retry-after", str(BACK_AFTER).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = b"{" if self.kind == "cut" else b"down\n"  # less than it says: the server ends the connection
        await send({"type": "http.response.body", "body": body, "more_body": self.kind == "cut"})
