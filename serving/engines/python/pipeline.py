"""Run the stages of a user's class as one call: plain ones in the calling thread, async ones on an event loop.

If one stage is async, all stages run on the loop, so that no two of them run in parallel.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final, Protocol

from serving.engines.base.engine import Cancellation
from serving.engines.python.loop_thread import LoopThread
from serving.engines.python.stages import FirstCall, Stage, Stages, Tensors, is_async_function

_END: Final = object()


class Pipeline(Protocol):
    """All stages as one call. Raises the errors of the user's code, and Cancelled."""

    @property
    def is_async(self) -> bool:
        """Whether inferences run concurrently on an event loop."""
        ...

    def value(self, tensors: Tensors, cancellation: Cancellation | None) -> Any:
        """Return the result of the last stage; for a `predict` that is not a generator."""
        ...

    def parts(self, tensors: Tensors, cancellation: Cancellation | None) -> Generator[Any, None, None]:
        """Yield the result of the last stage for each part; for a `predict` that is a generator."""
        ...


class SyncPipeline:
    """Stages that are plain functions."""

    is_async: Final = False

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def value(self, tensors: Tensors, _: Cancellation | None) -> Any:
        """Call the stages in order and return the last result."""
        return self._stages.postprocess(self._prepared(tensors)(self._stages.predict))

    def parts(self, tensors: Tensors, _: Cancellation | None) -> Generator[Any, None, None]:
        """Yield the postprocessed parts, each as soon as it is available."""
        with closing(self._prepared(tensors)(self._stages.predict)) as parts:
            for part in parts:
                yield self._stages.postprocess(part)

    def _prepared(self, tensors: Tensors) -> Callable[[Stage], Any]:
        """Return a function that calls `predict` for these tensors."""
        stages = self._stages
        if stages.preprocess is None:
            return partial(_call, stages.call_first, tensors)
        return partial(_call_with, stages.call_first(stages.preprocess, tensors))


class AsyncPipeline:
    """Stages of which some are async, or none but `load`; inferences of the latter do not await anything."""

    def __init__(self, stages: Stages, loop: LoopThread) -> None:
        self.is_async: Final = any(map(is_async_function, (stages.preprocess, stages.predict, stages.postprocess)))
        self._call_first = stages.call_first
        self._preprocess = None if stages.preprocess is None else _awaitable(stages.preprocess)
        self._predict = _async_generator(stages.predict) if stages.yields else _awaitable(stages.predict)
        self._postprocess = _awaitable(stages.postprocess)
        self._loop = loop

    def value(self, tensors: Tensors, cancellation: Cancellation | None) -> Any:
        """Call the stages in order and return the last result."""
        return self._loop.run(self._value(tensors), cancellation)

    def parts(self, tensors: Tensors, cancellation: Cancellation | None) -> Generator[Any, None, None]:
        """Yield the postprocessed parts, each as soon as it is available."""
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
            return partial(_call, self._call_first, tensors)
        return partial(_call_with, await self._call_first(self._preprocess, tensors))


def _call(call_first: FirstCall, tensors: Tensors, stage: Stage) -> Any:
    return call_first(stage, tensors)


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
