"""Effects: the inputs and outputs of a client's operations, which a driver performs.

An operation is a generator. It yields effects, and a driver performs each of them and sends the result back, or throws
the error into the generator. Operations contain every decision, drivers only the input and output: `blocking` on
`http.client` or on any transport, and `knodel.transport.asynchronous` on asyncio.

Example:
    def version(endpoint: ServerAddress) -> Call[str]:
        answer = yield from exchange(HttpRequest(endpoint, "GET", "/version"))
        return answer.content.decode()

    BlockingDriver(HttpTransport()).run(version(endpoint))
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from clusters.net.retry_after import parse_retry_after
from serving.client.http import MAX_RETRY_AFTER, ServerAddress

T = TypeVar("T")
E = TypeVar("E")
Show: TypeAlias = Callable[[str], None]
"""A function that shows a line of text."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
OK_BELOW = 300  # status codes; neither an API server nor a model sends redirects


class HttpRequest(NamedTuple):
    """A request; the whole response must arrive within `timeout` seconds, that of a stream its head.

    `inference`: it is for a model, so it may be sent with the HTTP client of the caller.
    """

    endpoint: ServerAddress
    method: str
    target: str
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes | None = None
    timeout: float = 30.0
    inference: bool = False


class HttpAnswer(NamedTuple):
    """A response. The names of `headers` are in lower case. `stream` is a handle of the driver, for `read_line`."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    content: bytes = b""
    stream: Any = None

    def retry_after(self, least: float = 0.0) -> float | None:
        """Return the seconds of the Retry-After header, at least `least`; None for an absent or invalid one."""
        return parse_retry_after(self.headers.get("retry-after"), datetime.now(UTC), least=least, most=MAX_RETRY_AFTER)


class Message(NamedTuple):
    """An item of a spawned operation, or its end: without an error if `error` is None."""

    key: Hashable
    value: Any = None
    ended: bool = False
    error: Exception | None = None


class Exchange(NamedTuple):
    """Send a request and return the HttpAnswer with its body."""

    request: HttpRequest


class OpenStream(NamedTuple):
    """Send a request and return the HttpAnswer with a stream, or with the body for a status of 300 or more.

    Lines may be `silence` seconds apart (None: no limit).
    """

    request: HttpRequest
    silence: float | None


class ReadLine(NamedTuple):
    """Return the next line of a stream; empty at its end."""

    stream: Any


class Sleep(NamedTuple):
    """Wait for some seconds."""

    seconds: float


class Now(NamedTuple):
    """Return the time of a monotonic clock in seconds."""


class Work(NamedTuple):
    """Call a function that blocks, such as one that reads files, and return its result."""

    function: Callable[[], Any]


class ReportedWork(NamedTuple):
    """Call a function that blocks with two functions that show its progress and its warnings; return its result."""

    function: Callable[[Show, Show], Any]


class Tell(NamedTuple):
    """Show a line about the progress in place of the last one, or a warning that stays."""

    text: str
    is_warning: bool = False


class Spawn(NamedTuple):
    """Run another operation at the same time; `Receive` returns its items and its end. It ends with its parent."""

    key: Hashable
    operation: Generator[Any, Any, None]


class Receive(NamedTuple):
    """Return the next Message of the spawned operations; None after `seconds` (None: no limit)."""

    seconds: float | None


class Item(NamedTuple, Generic[T]):
    """Hand a value to the caller of an operation that is iterated."""

    value: T


Effect: TypeAlias = Exchange | OpenStream | ReadLine | Sleep | Now | Work | ReportedWork | Tell | Spawn | Receive
Call: TypeAlias = Generator[Effect, Any, T]
"""An operation that returns a T."""
Items: TypeAlias = Generator[Effect | Item[T], Any, None]
"""An operation that yields values of type T to its caller."""


def each(items: Items[T], handle: Callable[[T], Generator[E, Any, bool]]) -> Generator[Effect | E, Any, bool]:
    """Pass each item of an operation to `handle`, until it returns True; then end the operation.

    Return whether `handle` returned True.
    """
    result: Any = None
    error: Exception | None = None
    try:
        while True:
            try:
                effect = items.send(result) if error is None else items.throw(error)
            except StopIteration:
                return False
            result, error = None, None
            if isinstance(effect, Item):
                if (yield from handle(effect.value)):
                    return True
                continue
            try:
                result = yield effect
            except Exception as raised:  # the operation handles the errors of its effects
                error = raised
    finally:
        items.close()


def exchange(request: HttpRequest) -> Call[HttpAnswer]:
    """Return the response with its body. Raises Unreachable, ClientError for a body that is too large."""
    answer: HttpAnswer = yield Exchange(request)
    return answer


def open_stream(request: HttpRequest, silence: float | None) -> Call[HttpAnswer]:
    """Return the response with its stream. Raises as `exchange`."""
    answer: HttpAnswer = yield OpenStream(request, silence)
    return answer


def read_line(stream: Any) -> Call[bytes]:
    """Return the next line; empty at the end. Raises Unreachable, ClientError for a line that is too long."""
    line: bytes = yield ReadLine(stream)
    return line


def sleep(seconds: float) -> Call[None]:
    """Wait for some seconds."""
    yield Sleep(seconds)


def now() -> Call[float]:
    """Return the time of a monotonic clock in seconds."""
    seconds: float = yield Now()
    return seconds


def work(function: Callable[[], T]) -> Call[T]:
    """Return the result of a function that blocks; raises its errors."""
    result: T = yield Work(function)
    return result


def reported_work(function: Callable[[Show, Show], T]) -> Call[T]:
    """Return the result of a function that blocks and shows progress and warnings; raises its errors."""
    result: T = yield ReportedWork(function)
    return result


def receive(seconds: float | None = None) -> Call[Message | None]:
    """Return the next message of the spawned operations; None after `seconds`."""
    message: Message | None = yield Receive(seconds)
    return message
