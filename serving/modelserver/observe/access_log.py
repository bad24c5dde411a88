"""The access log: one JSON line for each request, or for a sample of the requests. Off by default."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from serving.modelserver.base.line_writer import LineWriter

FAILED: Final = 500  # lowest HTTP status of a server error
GRPC: Final = "gRPC"
"""Method in the log of a gRPC call, whose `status` is the number of its gRPC status."""


class AccessLog:
    """Writes lines to `out` for a `share` (more than 0, at most 1) of the requests. `random` returns numbers in [0, 1).

    Every server error is logged, whatever the share.
    """

    def __init__(self, share: float, out: TextIO, random: Callable[[], float]) -> None:
        self._share = share
        self._random = random
        self._lines = LineWriter(out, lambda count: _line({"at": _now(), "dropped": count}))

    def write(
        self, method: str, path: str, status: int, seconds: float, trace: str = "", failed: bool | None = None
    ) -> None:
        """Write a line if the request is in the sample. `trace` is the id of the request's trace, if it has one.

        `failed`: whether the response is a server error; None derives it from the HTTP status. A sampled line includes
        the `share`, so that readers can extrapolate.
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

    def close(self, timeout: float) -> None:
        """Write the remaining lines; blocks, at most `timeout` seconds."""
        self._lines.close(timeout)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _line(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode() + "\n"
