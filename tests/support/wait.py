"""Waiting for what happens in the background, with a deadline and without a guess."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

LOOK_EVERY = 0.005  # s, at first
LOOK_LATE = 0.05  # of the time waited so far: the share that looks may come late, as the pauses between them grow
LOOK_AT_LEAST_EVERY = 0.1  # s; a look may be a request to an API server that shares two cores with the tests


@overload
async def eventually(predicate: Callable[[], Awaitable[T]], timeout: float = 30.0) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], timeout: float = 30.0) -> T: ...


async def eventually(predicate: Callable[[], Any], timeout: float = 30.0) -> Any:
    """The first true answer of `predicate` (plain or async), asked until `timeout` seconds are over.

    An AssertionError of the predicate counts as "not yet"; the last one is raised at the deadline.
    """
    began = time.monotonic()
    while True:
        failure: AssertionError | None = None
        try:
            answer = predicate()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
        except AssertionError as error:
            failure = error
        waited = time.monotonic() - began
        if waited > timeout:
            raise failure or AssertionError(f"not within {timeout} s: {predicate}")
        await asyncio.sleep(min(max(LOOK_EVERY, waited * LOOK_LATE), LOOK_AT_LEAST_EVERY))
