"""Errors of the model server, each with its HTTP status; responses carry them as `{"error": "…"}`.

KnodelError
├── BadOptions                invalid command-line options or environment variables
├── CannotListen              the address of a port is taken or invalid
└── HttpError                 the base class of error responses (`clusters.net.server.errors`)
    └── ServingError          those of the model server; the connection has others
        ├── InvalidRequest    400   the request violates the protocol, or the model does not accept its input
        ├── Unauthorized      401   a load call without a valid token
        ├── ResourceNotFound  404   unknown path, model or version
        ├── RequestTimeout    408   a gRPC message arrived too slowly
        ├── ModelConflict     409   a load call for a server that already has, or is limited to, another model
        ├── ContentTooLarge   413   more bytes or numbers than allowed
        ├── UnsupportedType   415   unsupported Content-Type or Content-Encoding
        ├── Overloaded        429   the queue or the memory for bodies is full; Retry-After
        ├── ModelFailed       500   the model failed; the log has the details under the id in the message
        ├── NotReady          503   the model is still loading, or all threads hang; Retry-After
        ├── DeviceLost        503   this process lost the accelerator and must be restarted; Retry-After
        ├── QueueExpired      503   the deadline passed in the queue, before the model saw the request; Retry-After
        ├── DeadlineExceeded  504   the deadline passed while the model worked: a retry would cost as much again
        └── ClientLeft              the caller disconnected, so no response is sent
"""

from __future__ import annotations

from clusters.base.errors import KnodelError
from clusters.net.server.errors import RETRY_AFTER, HttpError


class BadOptions(KnodelError):
    """Raised when the server cannot start with these options."""


class CannotListen(KnodelError):
    """Raised when the server cannot listen on an address.

    `setting` is the environment variable that changes the address. `advice` is the remedy, with `{}` for the name of
    the setting.
    """

    def __init__(self, problem: str, advice: str, setting: str) -> None:
        self.problem, self.advice, self.setting = problem, advice, setting
        super().__init__(self.message(setting))

    def message(self, setting: str) -> str:
        """Return the message for a caller who changes the address with `setting`, such as a command-line option."""
        return f"{self.problem}: {self.advice.format(setting)}"


class ServingError(HttpError):
    """The base class of the model server's error responses."""


class InvalidRequest(ServingError):
    """The request violates the protocol, or the model does not accept its input."""

    status = 400


class Unauthorized(ServingError):
    """The request lacks valid credentials."""

    status = 401

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The authentication scheme."""
        return [(b"www-authenticate", b"Bearer")]


class ResourceNotFound(ServingError):
    """The path, model or version does not exist."""

    status = 404


class RequestTimeout(ServingError):
    """The request arrived too slowly."""

    status = 408


class ModelConflict(ServingError):
    """The request conflicts with the model that the server already has."""

    status = 409


class ContentTooLarge(ServingError):
    """The request exceeds a size limit."""

    status = 413


class UnsupportedType(ServingError):
    """The Content-Type or Content-Encoding of the body is not supported."""

    status = 415


class Overloaded(ServingError):
    """The server has no capacity for the request now; a retry may succeed."""

    status = 429
    retry_after = RETRY_AFTER


class ModelFailed(ServingError):
    """The model failed for this input."""

    status = 500


class NotReady(ServingError):
    """The server cannot serve requests now; a retry may succeed."""

    status = 503
    retry_after = RETRY_AFTER


class DeviceLost(NotReady):
    """The accelerator failed, and will fail for all further requests of this process."""


class QueueExpired(NotReady):
    """The deadline passed while the request was queued."""


class DeadlineExceeded(ServingError):
    """The deadline passed during the inference."""

    status = 504


class ClientLeft(ServingError):
    """The caller disconnected."""

    status = 499  # for logs and metrics, as nginx has it


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of `error`, its causes and its contexts.

    The frames of a traceback hold the body of the request. A frame often refers to the error too, for example through
    the future that it awaits. Such a cycle keeps the body in memory until the garbage collector runs, although its
    bytes were already given back to the budget. Call this once the traceback is no longer needed.
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
