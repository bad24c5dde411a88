"""Audit log of the control API: a line of JSON in the platform's log for each change and each refusal.

On Kubernetes the API server has an audit log of its own. Reads are not logged, because commands and informers read all
the time. Refusals are limited to REFUSALS a second and counted beyond that, so that unauthenticated callers cannot fill
the disk.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.types import Message, Scope, Send

log = logging.getLogger(__name__)

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSALS: Final = 10
"""Refusals that are logged in a second."""
SHOWN: Final = 200
"""Characters of a user agent and of a path that are logged."""


class Audit:
    """Log responses. `now` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._second = 0.0
        self._written = 0
        self._untold = 0

    def wrap_send(self, scope: Scope, headers: Mapping[str, str], send: Send) -> Send:
        """Return `send` that also logs the response, if the request is a change."""
        if scope["method"] in READS:
            return send

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                log.info("audit %s", record(scope, headers, int(message["status"])))
            await send(message)

        return telling

    def refused(self, scope: Scope, headers: Mapping[str, str], status: int) -> None:
        """Log a request that the guard refused."""
        now = self._now()
        if now - self._second >= 1.0:
            self._second, self._written = now, 0
        if self._written >= REFUSALS:
            self._untold += 1
            return
        self._written += 1
        log.warning("audit %s", record(scope, headers, status, self._untold))
        self._untold = 0


def record(scope: Scope, headers: Mapping[str, str], status: int, untold: int = 0) -> str:
    """Return a line of JSON without tokens, bodies, and query parameters other than `dryRun`.

    `untold` is the number of earlier refusals that were not logged.
    """
    client = scope.get("client") or ("", 0)
    told: dict[str, Any] = {
        "method": scope["method"],
        "path": str(scope["path"])[:SHOWN],
        "status": status,
        "client": f"{client[0]}:{client[1]}",
        "agent": headers.get("user-agent", "")[:SHOWN],
    }
    if "All" in QueryParams(scope.get("query_string", b"")).getlist("dryRun"):
        told["dryRun"] = True  # nothing is written
    if untold:
        told["untold"] = untold
    return json.dumps(told)
