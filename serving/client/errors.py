"""Errors of the command, each with its exit code.

KnodelError                 1   failed
├── ClusterError            1   (Invalid: 2, NotFound: 3)
└── ClientError            1
    ├── UsageError          2   wrong usage, or refused by validation
    ├── DoesNotExist        3   not found
    ├── TimedOut            4   not ready in time
    └── Unreachable         1   no response, or an incomplete one
"""

from __future__ import annotations

from clusters.base.errors import Invalid, KnodelError, NotFound

FAILED, USAGE, NOT_FOUND, TIMED_OUT = 1, 2, 3, 4
INCOMPLETE = 5  # `knodel import` left something out
INTERRUPTED = 130  # by Ctrl-C, as a shell reports it


class ClientError(KnodelError):
    """The command failed."""

    exit_code = FAILED


class UsageError(ClientError):
    """The usage is wrong, or validation refused the request; nothing changed."""

    exit_code = USAGE


class DoesNotExist(ClientError):
    """The named object does not exist."""

    exit_code = NOT_FOUND


class TimedOut(ClientError):
    """The awaited state was not reached before the deadline."""

    exit_code = TIMED_OUT


class Unreachable(ClientError):
    """The server did not respond in time, or closed the connection before the end of its response."""


def exit_code_of(error: KnodelError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ClientError):
        return error.exit_code
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, Invalid) else FAILED
