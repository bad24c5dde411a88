"""Errors of the command and of the Python package, each with the exit code of the command.

KnodelError                 1   failed
├── ClusterError            1   (Invalid: 2, NotFound: 3)
└── ClientError             1
    ├── UsageError          2   wrong usage, or refused by validation; also an Invalid
    ├── DoesNotExist        3   not found; also a NotFound
    ├── TimedOut            4   not ready in time
    ├── ModelError          1   the error response of a model (2 for a refused request)
    └── Unreachable         1   no response, or an incomplete one
        └── NotConnected    1   no connection, so nothing was sent
"""

from __future__ import annotations

from clusters.base.errors import Invalid, KnodelError, NotFound

FAILED, USAGE, NOT_FOUND, TIMED_OUT = 1, 2, 3, 4
INCOMPLETE = 5  # `knodel import` left something out
ROLLED_BACK = 6  # the rollout of `knodel rollout watch` was rolled back or has failed
REFUSED = frozenset({400, 413, 415})
"""Statuses of a model for a request that it cannot read."""
INTERRUPTED = 130  # by Ctrl-C, as a shell reports it


class ClientError(KnodelError):
    """The operation failed. `status` is the HTTP status of a response, None without one."""

    exit_code = FAILED

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UsageError(ClientError, Invalid):
    """The usage is wrong, or validation refused the request; nothing changed."""

    exit_code = USAGE

    def __init__(self, message: str, status: int | None = None) -> None:
        Exception.__init__(self, message)
        self.status, self.what, self.causes = status, message, ()


class DoesNotExist(ClientError, NotFound):
    """The named object does not exist."""

    exit_code = NOT_FOUND


def no_model(name: str, namespace: str) -> DoesNotExist:
    """Return the error for a Model that does not exist."""
    return DoesNotExist(f"model {name} not found in namespace {namespace}: `knodel list -A` lists all", 404)


class ModelError(ClientError):
    """A model answered with an error: `status` is that of the response, `request_id` its id if there is one."""

    def __init__(self, message: str, status: int, request_id: str = "") -> None:
        super().__init__(message, status)
        self.request_id = request_id
        self.exit_code = USAGE if status in REFUSED else FAILED


class TimedOut(ClientError):
    """The awaited state was not reached before the deadline."""

    exit_code = TIMED_OUT


class Unreachable(ClientError):
    """The server did not respond in time, or closed the connection before the end of its response."""


class NotConnected(Unreachable):
    """No connection to the server was established, so it has received no part of the request."""


def exit_code_of(error: KnodelError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ClientError):
        return error.exit_code
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, Invalid) else FAILED
