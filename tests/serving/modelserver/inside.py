"""Test support: record and hold inferences inside a model, whose code imports this module."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from tests.serving.modelserver.client import Answer
from tests.serving.modelserver.conftest import Running
from tests.support.wait import eventually

SLOTS = 12
"""More than the threads of a model that may compute."""
PYTHON = ("--format", "python", "--allow-code", "--slots", str(SLOTS))


class Inside:
    """The current and the maximum number of inferences inside a model; they stay until `opened`."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.opened: Future[None] = Future()
        self._lock = threading.Lock()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Count one inference as inside."""
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1

    async def most_of(self, running: Running, ask: Callable[[], Awaitable[Answer]], expected: int) -> int:
        """Send `SLOTS` requests at once; return the maximum number inside, at least `expected`."""

        async def all_there() -> bool:
            return bool((await running.stats())["active"] == SLOTS)

        self.most, self.opened = 0, Future()
        calls = [asyncio.ensure_future(ask()) for _ in range(SLOTS)]
        try:
            await eventually(all_there)
            await eventually(lambda: self.now >= expected)
        finally:
            self.opened.set_result(None)
            answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [200] * SLOTS
        return self.most


INSIDE = Inside()
_BEGIN = """
import asyncio

from tests.serving.modelserver.inside import INSIDE

class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    thread_safe = True
"""
PLAIN = f"""{_BEGIN}
    def predict(self, x):
        if x.any():  # no warm-up
            with INSIDE.entered():
                INSIDE.opened.result(30)
        return x
"""
ASYNC = f"""{_BEGIN}
    async def predict(self, x):
        if x.any():
            with INSIDE.entered():
                await asyncio.shield(asyncio.wrap_future(INSIDE.opened))
        return x
"""
GENERATOR = ASYNC.replace("return x", "yield x")
PREPARED = f"""{ASYNC.replace("predict", "preprocess")}
    def predict(self, x):
        return x
"""
WAITING = pytest.mark.parametrize("code", [ASYNC, GENERATOR, PREPARED], ids=["async", "generator", "preprocess"])
"""Models that wait on a loop of their own."""
