"""Waiting for what happens in the background, with a deadline and without a guess."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

LOOK_EVERY = 0.005  # s


@overload
async def eventually(predicate: Callable[[], Awaitable[T]], timeout: float = 30.0) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], timeout: float = 30.0) -> T: ...


async def eventually(predicate: Callable[[], Any], timeout: float = 30.0) -> Any:
    """The first true answer of `predicate` (plain or async), asked until `timeout` seconds are over.

    An AssertionError of the predicate counts as "not yet"; the last one is raised at the deadline.
    """
    deadline = time.monotonic() + timeout
    while True:
        failure: AssertionError | None = None
        try:
            answer = predicate()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure or AssertionError(f"not within {timeout} s: {predicate}")
        await asyncio.sleep(LOOK_EVERY)
