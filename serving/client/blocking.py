"""The driver for threads: it performs the effects of an operation one after another, over a transport."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from clusters.base.errors import KnodelError
from serving.client.effects import (
    OK_BELOW,
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
from serving.client.http import LineReader, exchange, open_lines

T = TypeVar("T")
P = ParamSpec("P")
Core = TypeVar("Core")
CoreOf = TypeVar("CoreOf", covariant=True)


class Transport(Protocol):
    """HTTP for a `BlockingDriver`; calls may come from several threads."""

    def exchange(self, request: HttpRequest) -> HttpAnswer:
        """Perform `Exchange`."""
        ...

    def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        """Perform `OpenStream`."""
        ...

    def read_line(self, stream: Any) -> bytes:
        """Perform `ReadLine`."""
        ...

    def close(self, stream: Any) -> None:
        """Close a stream; a `read_line` in another thread ends."""
        ...


class HttpTransport:
    """The transport of the command: a connection for each request, on the standard library."""

    def exchange(self, request: HttpRequest) -> HttpAnswer:
        """Perform `Exchange`."""
        endpoint, method, target, headers, body, timeout, _ = request
        with exchange(endpoint, method, target, body=body, headers=headers, timeout=timeout) as response:
            return HttpAnswer(response.status, response.phrase, response.names(), response.body())

    def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        """Perform `OpenStream`."""
        endpoint, method, target, headers, body, timeout, _ = request
        lines = open_lines(endpoint, method, target, body=body, headers=headers, timeout=timeout, silence=silence)
        response = lines.response
        answer = HttpAnswer(response.status, response.phrase, response.names(), stream=lines)
        if response.status < OK_BELOW:
            return answer
        try:
            return answer._replace(content=lines.rest(), stream=None)
        finally:
            lines.close()

    def read_line(self, stream: LineReader) -> bytes:
        """Perform `ReadLine`."""
        return stream.read()

    def close(self, stream: LineReader) -> None:
        """Close a stream."""
        stream.close()


class _Stopped(Exception):
    """The parent of a spawned operation has ended."""


class Progress(Protocol):
    """A line that shows the progress of one operation."""

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        ...

    def clear(self) -> None:
        """End: a terminal removes the line, a notebook keeps its last text."""
        ...


class NoProgress:
    """Shows nothing: output that goes to a file or another program is not for people who wait."""

    def show(self, text: str) -> None:
        """Show nothing."""

    def clear(self) -> None:
        """Remove nothing."""


class _Scope:
    """The streams, the spawned operations, the mailbox and the progress line of one running operation."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.mailbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._streams: list[Any] = []
        self._children: list[_Scope] = []
        self._stopped = False
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise _Stopped if the parent has ended."""
        if self._stopped:
            raise _Stopped

    def keep(self, stream: Any, transport: Transport) -> None:
        """Close `stream` when the operation ends. Raises _Stopped."""
        with self._lock:
            self._streams.append(stream)
        if self._stopped:
            transport.close(stream)
            raise _Stopped

    def child(self) -> _Scope:
        """Return the scope of a spawned operation."""
        made = _Scope(NoProgress())
        with self._lock:
            self._children.append(made)
        return made

    def close(self, transport: Transport) -> None:
        """Stop the spawned operations and close all streams."""
        with self._lock:
            self._stopped = True
            streams, children = list(self._streams), list(self._children)
        for child in children:
            child.close(transport)
        for stream in streams:
            transport.close(stream)
        self.progress.clear()


def _ignore(text: str) -> None:
    """Show nothing."""


def complete_message(error: KnodelError, advise: Callable[[str], str]) -> None:
    """Replace the message of an error by `advise(message)`."""
    if error.args[:1] == (message := str(error),):
        error.args = (advise(message), *error.args[1:])


class BlockingDriver:
    """Runs operations in the thread of the caller; `progress` makes the line of each one, `warn` shows warnings.

    `advise` completes the commands that messages advise.
    """

    def __init__(
        self,
        transport: Transport,
        progress: Callable[[], Progress] = NoProgress,
        warn: Callable[[str], None] = _ignore,
        advise: Callable[[str], str] = str,
    ) -> None:
        self._transport = transport
        self._progress = progress
        self._warn: Callable[[str], None] = lambda text: warn(advise(text))
        self._advise = advise

    def run(self, call: Call[T]) -> T:
        """Return the result of an operation; raises its errors."""
        steps = self._steps(call, _Scope(self._progress()))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result

    def iterate(self, items: Items[T]) -> Iterator[T]:
        """Yield the items of an operation as they come; closing the iterator ends the operation."""
        yield from self._steps(items, _Scope(self._progress()))

    def _steps(self, operation: Generator[Any, Any, T], scope: _Scope) -> Generator[Any, None, T]:
        """Perform the effects of an operation, yield its items and return its result."""
        result: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    effect = operation.send(result) if error is None else operation.throw(error)
                except StopIteration as end:
                    value: T = end.value
                    return value
                except KnodelError as failed:
                    complete_message(failed, self._advise)
                    raise
                result, error = None, None
                if isinstance(effect, Item):
                    yield effect.value
                    continue
                scope.check()
                try:
                    result = self._perform(effect, scope)
                except _Stopped:
                    raise
                except Exception as raised:  # thrown into the operation
                    error = raised
        finally:
            operation.close()
            scope.close(self._transport)

    def _perform(self, effect: Any, scope: _Scope) -> Any:
        match effect:
            case Exchange() | OpenStream() | ReadLine():
                return self._send(effect, scope)
            case Sleep(seconds):
                return time.sleep(seconds)
            case Now():
                return time.monotonic()
            case Work(function):
                return function()
            case ReportedWork(reported):
                return reported(scope.progress.show, self._warn)
            case Tell(text, is_warning):
                return self._warn(text) if is_warning else scope.progress.show(text)
            case Spawn(key, operation):
                child, name = scope.child(), f"knodel-{key}"
                threading.Thread(
                    target=self._child, args=(key, operation, child, scope.mailbox), name=name, daemon=True
                ).start()
                return None
            case Receive(seconds):
                try:
                    return scope.mailbox.get(timeout=seconds)
                except queue.Empty:
                    return None
        raise TypeError(f"{effect!r} is not an effect")

    def _send(self, effect: Exchange | OpenStream | ReadLine, scope: _Scope) -> HttpAnswer | bytes:
        match effect:
            case Exchange(request):
                return self._transport.exchange(request)
            case OpenStream(request, silence):
                answer = self._transport.open(request, silence)
                if answer.stream is not None:
                    scope.keep(answer.stream, self._transport)
                return answer
            case ReadLine(stream):
                return self._transport.read_line(stream)

    def _child(
        self, key: Hashable, operation: Generator[Any, Any, None], scope: _Scope, mailbox: queue.SimpleQueue[Message]
    ) -> None:
        """Run a spawned operation in its thread."""
        try:
            for value in self._steps(operation, scope):
                mailbox.put(Message(key, value))
        except _Stopped:
            return
        except Exception as error:  # the parent decides what it means
            mailbox.put(Message(key, ended=True, error=error))
        else:
            mailbox.put(Message(key, ended=True))


class RunsCalls(Protocol[CoreOf]):
    """A class with blocking methods: the first argument of their operations, and the driver."""

    @property
    def core(self) -> CoreOf:
        """The first argument of each operation."""
        ...

    @property
    def driver(self) -> BlockingDriver:
        """The driver that runs each operation."""
        ...


def blocking(operation: Callable[Concatenate[Core, P], Call[T]]) -> Callable[Concatenate[RunsCalls[Core], P], T]:
    """Return a method that runs an operation and returns its result, with the operation's signature and docstring."""

    def method(self: RunsCalls[Core], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.driver.run(operation(self.core, *args, **kwargs))

    return as_method(method, operation)


def blocking_iterator(
    operation: Callable[Concatenate[Core, P], Items[T]],
) -> Callable[Concatenate[RunsCalls[Core], P], Iterator[T]]:
    """Return a method that yields the items of an operation, with the operation's signature and docstring."""

    def method(self: RunsCalls[Core], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.driver.iterate(operation(self.core, *args, **kwargs))

    return as_method(method, operation, "Iterator[{}]")


M = TypeVar("M", bound=Callable[..., Any])


def as_method(method: M, operation: Callable[..., Any], result: str = "{}") -> M:
    """Give a method the name, docstring and signature of an operation, so that `help` and editors show them.

    The T of the operation's `Call[T]` or `Items[T]` is inserted into `result`.
    """
    code: Any = operation
    shown = FunctionType(code.__code__, code.__globals__, code.__name__, code.__defaults__)
    shown.__kwdefaults__ = code.__kwdefaults__
    returned = str(code.__annotations__.get("return", "")).partition("[")[2][:-1]
    shown.__annotations__ = {**code.__annotations__, "return": result.format(returned)}
    method.__name__ = code.__name__
    method.__doc__ = code.__doc__
    method.__wrapped__ = shown  # type: ignore[attr-defined]  # read by inspect.signature, which is slow to import
    return method
