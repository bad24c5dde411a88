"""One JSON line for each request, or for a share of them, when asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from serving.modelserver.base.line_writer import LineWriter

FAILED: Final = 500  # status over HTTP from which on it is the server's fault
GRPC: Final = "gRPC"
"""Method of a call over gRPC, whose `status` is a number of gRPC's."""


class AccessLog:
    """Writes to `out`, for a `share` (more than 0, at most 1) of the requests; `random` gives numbers in [0, 1).

    Whatever the share, every failure of the server gets its line: somebody will ask why.
    """

    def __init__(self, share: float, out: TextIO, random: Callable[[], float]) -> None:
        self._share = share
        self._random = random
        self._lines = LineWriter(out, lambda count: _line({"at": _now(), "dropped": count}))

    def write(
        self, method: str, path: str, status: int, seconds: float, trace: str = "", failed: bool | None = None
    ) -> None:
        """Write the line, or not. `trace` is the id of the request's trace, if it has one.

        `failed`: whether the server did (None: as `status` over HTTP says). A line that stands for others, too, says
        which `share` of the requests has one.
        """
        sampled = self._share < 1 and not (status >= FAILED if failed is None else failed)
        if sampled and self._random() >= self._share:
            return
        line: dict[str, Any] = {
            "at": _now(),
            "method": method,
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 3),
        }
        if trace:
            line["trace"] = trace
        if sampled:
            line["share"] = self._share
        self._lines.put(_line(line))

    def close(self, patience: float) -> None:
        """Write what waits; blocks, at most `patience` seconds."""
        self._lines.close(patience)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _line(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode() + "\n"
