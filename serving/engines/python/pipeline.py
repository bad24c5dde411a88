"""The stages of a user's class as one call: plain ones in the thread that asks, async ones on a loop of their own.

A class with one async stage has all its stages run on the loop, so that no two of them ever run at the same moment.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final, Protocol

from serving.engines.base.engine import Cancellation
from serving.engines.python.loop_thread import LoopThread
from serving.engines.python.stages import Stage, Stages, Tensors, awaits

_END: Final = object()


class Pipeline(Protocol):
    """All stages as one. Raises what the user's code raises, and Cancelled."""

    @property
    def waits(self) -> bool:
        """Whether inferences await something, beside each other."""
        ...

    def value(self, tensors: Tensors, cancellation: Cancellation | None) -> Any:
        """What the last stage gives, when `predict` does not yield."""
        ...

    def parts(self, tensors: Tensors, cancellation: Cancellation | None) -> Generator[Any, None, None]:
        """What it gives for each part, when `predict` yields."""
        ...


class SyncPipeline:
    """Stages that are plain functions."""

    waits: Final = False

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def value(self, tensors: Tensors, _: Cancellation | None) -> Any:
        """One call after the other."""
        return self._stages.postprocess(self._prepared(tensors)(self._stages.predict))

    def parts(self, tensors: Tensors, _: Cancellation | None) -> Generator[Any, None, None]:
        """Each part as it comes."""
        with closing(self._prepared(tensors)(self._stages.predict)) as parts:
            for part in parts:
                yield self._stages.postprocess(part)

    def _prepared(self, tensors: Tensors) -> Callable[[Stage], Any]:
        """How `predict` is called for these tensors."""
        stages = self._stages
        if stages.preprocess is None:
            return partial(_call, stages.way, tensors)
        return partial(_call_with, stages.way(stages.preprocess, tensors))


class AsyncPipeline:
    """Stages of which some are async, or a `load` that is: then no inference awaits anything."""

    def __init__(self, stages: Stages, loop: LoopThread) -> None:
        self.waits: Final = any(map(awaits, (stages.preprocess, stages.predict, stages.postprocess)))
        self._way = stages.way
        self._preprocess = None if stages.preprocess is None else _awaitable(stages.preprocess)
        self._predict = _async_generator(stages.predict) if stages.yields else _awaitable(stages.predict)
        self._postprocess = _awaitable(stages.postprocess)
        self._loop = loop

    def value(self, tensors: Tensors, cancellation: Cancellation | None) -> Any:
        """One call after the other."""
        return self._loop.run(self._value(tensors), cancellation)

    def parts(self, tensors: Tensors, cancellation: Cancellation | None) -> Generator[Any, None, None]:
        """Each part as it comes."""
        parts = self._parts(tensors)
        try:
            while (part := self._loop.run(_next_of(parts), cancellation)) is not _END:
                yield part
        finally:
            self._loop.run(parts.aclose())

    async def _value(self, tensors: Tensors) -> Any:
        call = await self._prepared(tensors)
        return await self._postprocess(await call(self._predict))

    async def _parts(self, tensors: Tensors) -> AsyncGenerator[Any, None]:
        call = await self._prepared(tensors)
        async with aclosing(call(self._predict)) as parts:
            async for part in parts:
                yield await self._postprocess(part)

    async def _prepared(self, tensors: Tensors) -> Callable[[Stage], Any]:
        if self._preprocess is None:
            return partial(_call, self._way, tensors)
        return partial(_call_with, await self._way(self._preprocess, tensors))


def _call(way: Callable[[Stage, Tensors], Any], tensors: Tensors, stage: Stage) -> Any:
    return way(stage, tensors)


def _call_with(value: Any, stage: Stage) -> Any:
    return stage(value)


async def _next_of(parts: AsyncGenerator[Any, None]) -> Any:
    return await anext(parts, _END)


def _awaitable(stage: Stage) -> Stage:
    if inspect.iscoroutinefunction(stage):
        return stage

    async def call(*values: Any, **named: Any) -> Any:
        return stage(*values, **named)

    return call


def _async_generator(stage: Stage) -> Stage:
    if inspect.isasyncgenfunction(stage):
        return stage

    async def parts(*values: Any, **named: Any) -> AsyncGenerator[Any, None]:
        with closing(stage(*values, **named)) as found:
            for part in found:
                yield part

    return parts
