"""The client of the command: the operations of `ApiCalls` as blocking methods, on the standard library.

Large imports would slow each command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from serving.client.api import MIN_TIMEOUT, TIMEOUT, ApiCalls
from serving.client.blocking import BlockingDriver, HttpTransport, blocking, blocking_iterator
from serving.client.effects import Call
from serving.client.server import Server

__all__ = ["MIN_TIMEOUT", "TIMEOUT", "Client"]

T = TypeVar("T")
P = ParamSpec("P")


class Client:
    """A client of one API server; `timeout` limits each response, in seconds."""

    def __init__(self, server: Server, timeout: float = TIMEOUT, driver: BlockingDriver | None = None) -> None:
        self.core = ApiCalls(server, timeout)
        self.driver = driver or BlockingDriver(HttpTransport())

    def call(self, operation: Callable[Concatenate[ApiCalls, P], Call[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation on this server, such as those of `serving.client.models`, and return its result."""
        return self.driver.run(operation(self.core, *args, **kwargs))

    get = blocking(ApiCalls.get)
    exists = blocking(ApiCalls.exists)
    list = blocking(ApiCalls.list)
    merge = blocking(ApiCalls.merge)
    create = blocking(ApiCalls.create)
    delete = blocking(ApiCalls.delete)
    review = blocking(ApiCalls.review)
    read = blocking(ApiCalls.read)
    watch = blocking_iterator(ApiCalls.watch)
    stream = blocking_iterator(ApiCalls.stream)
