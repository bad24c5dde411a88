"""The driver for asyncio: it performs the effects of an operation one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Hashable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from clusters.base.errors import KnodelError
from serving.client.blocking import NoProgress, Progress, as_method, complete_message
from serving.client.effects import (
    Call,
    Exchange,
    HttpAnswer,
    HttpRequest,
    Item,
    Items,
    Message,
    Now,
    OpenStream,
    ReadLine,
    Receive,
    ReportedWork,
    Sleep,
    Spawn,
    Tell,
    Work,
)

T = TypeVar("T")
P = ParamSpec("P")
Core = TypeVar("Core")
CoreOf = TypeVar("CoreOf", covariant=True)


class AsyncTransport(Protocol):
    """HTTP for an `AsyncDriver`."""

    async def exchange(self, request: HttpRequest) -> HttpAnswer:
        """Perform `Exchange`."""
        ...

    async def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        """Perform `OpenStream`."""
        ...

    async def read_line(self, stream: Any) -> bytes:
        """Perform `ReadLine`."""
        ...

    async def close(self, stream: Any) -> None:
        """Close a stream."""
        ...


class _TaskScope:
    """The streams, the spawned tasks, the mailbox and the progress line of one running operation."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.mailbox: asyncio.Queue[Message] = asyncio.Queue()
        self.streams: list[Any] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def close(self, transport: AsyncTransport) -> None:
        """Cancel the spawned tasks and close all streams."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for stream in self.streams:
            await transport.close(stream)
        self.progress.clear()


class AsyncDriver:
    """Runs operations in the event loop; `progress` makes the line of each one, `warn` shows warnings.

    `advise` completes the commands that messages advise.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        progress: Callable[[], Progress],
        warn: Callable[[str], None],
        advise: Callable[[str], str] = str,
    ) -> None:
        self._transport = transport
        self._progress = progress
        self._warn: Callable[[str], None] = lambda text: warn(advise(text))
        self._advise = advise

    async def run(self, call: Call[T]) -> T:
        """Return the result of an operation; raises its errors."""
        result: list[T] = []
        async for _ in self._steps(call, _TaskScope(self._progress()), result.append):
            pass
        return result[0]

    async def iterate(self, items: Items[T]) -> AsyncIterator[T]:
        """Yield the items of an operation as they come; closing the iterator ends the operation."""
        steps = self._steps(items, _TaskScope(self._progress()), lambda _: None)
        try:
            async for value in steps:
                yield value
        finally:
            await steps.aclose()

    async def _steps(
        self, operation: Generator[Any, Any, T], scope: _TaskScope, ended: Callable[[T], None]
    ) -> Any:  # an async generator of the items
        """Perform the effects of an operation, yield its items, and pass its result to `ended`."""
        result: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    effect = operation.send(result) if error is None else operation.throw(error)
                except StopIteration as end:
                    ended(end.value)
                    return
                except KnodelError as failed:
                    complete_message(failed, self._advise)
                    raise
                result, error = None, None
                if isinstance(effect, Item):
                    yield effect.value
                    continue
                try:
                    result = await self._perform(effect, scope)
                except Exception as raised:  # thrown into the operation
                    error = raised
        finally:
            operation.close()
            await scope.close(self._transport)

    async def _perform(self, effect: Any, scope: _TaskScope) -> Any:
        match effect:
            case Exchange() | OpenStream() | ReadLine():
                return await self._send(effect, scope)
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case Now():
                return time.monotonic()
            case Work(function):
                return await asyncio.to_thread(function)
            case ReportedWork(reported):
                return await asyncio.to_thread(reported, scope.progress.show, self._warn)
            case Tell(text, is_warning):
                return self._warn(text) if is_warning else scope.progress.show(text)
            case Spawn(key, operation):
                task = asyncio.create_task(self._child(key, operation, scope.mailbox))
                scope.tasks.add(task)
                task.add_done_callback(scope.tasks.discard)
                return None
            case Receive(seconds):
                try:
                    async with asyncio.timeout(seconds):
                        return await scope.mailbox.get()
                except TimeoutError:
                    return None
        raise TypeError(f"{effect!r} is not an effect")

    async def _send(self, effect: Exchange | OpenStream | ReadLine, scope: _TaskScope) -> HttpAnswer | bytes:
        match effect:
            case Exchange(request):
                return await self._transport.exchange(request)
            case OpenStream(request, silence):
                answer = await self._transport.open(request, silence)
                if answer.stream is not None:
                    scope.streams.append(answer.stream)
                return answer
            case ReadLine(stream):
                return await self._transport.read_line(stream)

    async def _child(
        self, key: Hashable, operation: Generator[Any, Any, None], mailbox: asyncio.Queue[Message]
    ) -> None:
        """Run a spawned operation in its task."""
        try:
            async for value in self._steps(operation, _TaskScope(NoProgress()), lambda _: None):
                mailbox.put_nowait(Message(key, value))
        except Exception as error:  # the parent decides what it means
            mailbox.put_nowait(Message(key, ended=True, error=error))
        else:
            mailbox.put_nowait(Message(key, ended=True))


class AwaitsCalls(Protocol[CoreOf]):
    """A class with asynchronous methods: the first argument of their operations, and the driver."""

    @property
    def core(self) -> CoreOf:
        """The first argument of each operation."""
        ...

    @property
    def driver(self) -> AsyncDriver:
        """The driver that runs each operation."""
        ...


def awaitable(
    operation: Callable[Concatenate[Core, P], Call[T]],
) -> Callable[Concatenate[AwaitsCalls[Core], P], Coroutine[Any, Any, T]]:
    """Return an asynchronous method that runs an operation, with the operation's signature and docstring."""

    def method(self: AwaitsCalls[Core], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.driver.run(operation(self.core, *args, **kwargs))

    return as_method(method, operation, "Coroutine[Any, Any, {}]")


def async_iterator(
    operation: Callable[Concatenate[Core, P], Items[T]],
) -> Callable[Concatenate[AwaitsCalls[Core], P], AsyncIterator[T]]:
    """Return a method that yields the items of an operation, with the operation's signature and docstring."""

    def method(self: AwaitsCalls[Core], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self.driver.iterate(operation(self.core, *args, **kwargs))

    return as_method(method, operation, "AsyncIterator[{}]")
