"""Who changed what through the control API, and who was refused: a line of JSON in the platform's log for each.

On Kubernetes the API server's own audit log says the same. Reads that pass are not told of: commands and informers ask
all the time. Strangers cannot fill the disk: of refusals, so many a second are written, and the rest is counted.
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
"""A second that are written."""
SHOWN: Final = 200
"""Characters of what a caller says of itself, and of a path."""


class Audit:
    """Watches answers go out; `now` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._second = 0.0
        self._written = 0
        self._untold = 0

    def heard(self, scope: Scope, headers: Mapping[str, str], send: Send) -> Send:
        """`send`, with a line for the answer if it is to a change."""
        if scope["method"] in READS:
            return send

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                log.info("audit %s", record(scope, headers, int(message["status"])))
            await send(message)

        return telling

    def refused(self, scope: Scope, headers: Mapping[str, str], status: int) -> None:
        """A line for a request that the guard did not let pass."""
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
    """One line of JSON, without tokens, bodies and, but for `dryRun`, queries.

    `untold`: refusals before it that were not written.
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
