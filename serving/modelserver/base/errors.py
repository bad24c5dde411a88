"""What a caller can be told, each with its status code; all are answered as `{"error": "…"}`.

KnodelError
├── BadOptions                the command line or environment cannot be served with
└── ServingError              an answer that is not the wished one
    ├── BadRequest      400   the request breaks the protocol, or the model does not take its input
    ├── Unauthorized    401   a load call without the right token
    ├── Forbidden       403   the Host or Origin of a web page that this server is not for
    ├── NotFound        404   no such path, model or version
    ├── RequestTimeout  408   head or body came too slowly
    ├── Conflict        409   a load call for a server that has, or can only have, another model
    ├── TooLarge        413   more bytes or numbers than allowed
    ├── UnsupportedType 415   a Content-Type or -Encoding that is not read
    ├── Overloaded      429   the queue is full, or all memory for bodies is lent; Retry-After
    ├── HeadTooLarge    431   too many or too long headers
    ├── ModelFailed     500   the model failed; details are in the log under the id that the caller gets
    ├── NotReady        503   still loading, or all threads hang; Retry-After
    ├── DeviceLost      503   the accelerator is lost to this process, which is to be restarted; Retry-After
    ├── QueueExpired    503   the deadline passed before a slot was free; the model saw nothing, so Retry-After
    ├── DeadlineExceeded 504  the deadline passed while the model worked: trying again would cost as much again
    └── ClientLeft            nobody to answer
"""

from __future__ import annotations

from typing import ClassVar

from clusters.base.errors import KnodelError

RETRY_AFTER = 1  # s; a full queue drains, and a model loads, in about this


class BadOptions(KnodelError):
    """The server cannot start with these options."""


class CannotListen(KnodelError):
    """The server cannot listen on an address.

    `setting` is the environment variable that changes the address. `advice` is the remedy, with `{}` for the name of
    the setting.
    """

    def __init__(self, problem: str, advice: str, setting: str) -> None:
        self.problem, self.advice, self.setting = problem, advice, setting
        super().__init__(self.message(setting))

    def message(self, setting: str) -> str:
        """Return the message for a caller who changes the address with `setting`, such as a command-line option."""
        return f"{self.problem}: {self.advice.format(setting)}"


class ServingError(KnodelError):
    """An answer with `status`; `str` is what the caller reads, so it holds no path and no traceback."""

    status: ClassVar[int] = 500
    retry_after: ClassVar[int | None] = None


class BadRequest(ServingError):
    """The request cannot be served as it is."""

    status = 400


class BadFraming(BadRequest):
    """The request is no HTTP/1.1 that all parties would read alike; the connection ends."""


class Unauthorized(ServingError):
    """The caller has not shown that it may ask for this."""

    status = 401


class Forbidden(ServingError):
    """The request names a host, or comes from a web page, that this server is not for."""

    status = 403


class NotFound(ServingError):
    """No such path, model or version."""

    status = 404


class RequestTimeout(ServingError):
    """The request came too slowly."""

    status = 408


class Conflict(ServingError):
    """The server is taken."""

    status = 409


class TooLarge(ServingError):
    """More than is allowed."""

    status = 413


class UnsupportedType(ServingError):
    """The body is of a kind that is not read."""

    status = 415


class Overloaded(ServingError):
    """Nothing was done; later it may be."""

    status = 429
    retry_after = RETRY_AFTER


class HeadTooLarge(ServingError):
    """Too many or too long headers."""

    status = 431


class ModelFailed(ServingError):
    """The model has no answer for this input."""

    status = 500


class NotReady(ServingError):
    """The server does not serve at the moment."""

    status = 503
    retry_after = RETRY_AFTER


class DeviceLost(NotReady):
    """The model failed because the accelerator did, as it will for whoever asks next."""


class QueueExpired(NotReady):
    """The deadline passed in the queue."""


class DeadlineExceeded(ServingError):
    """The deadline passed during the inference."""

    status = 504


class ClientLeft(ServingError):
    """The caller is gone."""

    status = 499  # for the log, as other servers write it


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of `error` and of all errors that led to it.

    The frames of a traceback hold the body of the request. A frame often refers to the error too, for example through
    the future that it awaits. Such a cycle keeps the body until the garbage collector runs, after its memory was given
    back to the budget. Call this when nobody reads the traceback any more.
    """
    chain: list[BaseException | None] = [error]
    released: set[int] = set()
    while chain:
        one = chain.pop()
        if one is None or id(one) in released:
            continue
        released.add(id(one))
        one.__traceback__ = None
        chain += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            chain += one.exceptions
