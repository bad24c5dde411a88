"""Answers over gRPC that callers have not taken yet: gRPC keeps them until its flow control lets them go.

A caller that does not read at all is found by a ping (`server.py`), and its connection ends.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from serving.modelserver.base.errors import Overloaded
from serving.modelserver.base.limits import SMALL_BODY
from serving.modelserver.grpc.reading import Context


class Untaken:
    """At most about `limit` bytes of all answers: with more there are no inferences."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0

    def check(self) -> None:
        """Raises Overloaded."""
        if self._bytes > self._limit:
            raise Overloaded("callers do not take their answers: try again")

    def add(self, context: Context, answer: bytes) -> None:
        """Count an answer until its call ends; a small one is nothing beside the call itself."""
        size = len(answer)
        if size > SMALL_BODY:
            self._bytes += size
            context.add_done_callback(partial(self._taken, size))

    def _taken(self, size: int, _: Any) -> None:
        self._bytes -= size
