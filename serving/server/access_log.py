"""One JSON line for each request, or for a share of them, when asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

ALWAYS: Final = 500  # status from which on every request gets its line, whatever the share: somebody will ask why


class AccessLog:
    """Writes to `out`, for a `share` (more than 0, at most 1) of the requests; `random` gives numbers in [0, 1)."""

    def __init__(self, share: float, out: TextIO, random: Callable[[], float]) -> None:
        self._share = share
        self._out = out
        self._random = random

    def write(self, method: str, path: str, status: int, seconds: float, trace: str = "") -> None:
        """Write the line, or not. `trace` is the id of the request's trace, if it has one.

        A line that stands for others, too, says which `share` of the requests has one.
        """
        sampled = self._share < 1 and status < ALWAYS
        if sampled and self._random() >= self._share:
            return
        line: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method,
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 3),
        }
        if trace:
            line["trace"] = trace
        if sampled:
            line["share"] = self._share
        self._out.write(msgspec.json.encode(line).decode() + "\n")
        self._out.flush()
