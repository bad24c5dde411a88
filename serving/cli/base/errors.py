"""Errors of the command, each with its exit code.

KnodelError            1   failed
├── ClusterError       1   (Invalid: 2, NotFound: 3)
└── CommandError       1
    ├── UsageError     2   wrong usage, or refused by validation
    ├── NoSuchThing    3   not found
    ├── NotInTime      4   not ready in time
    └── Unreachable    1   no answer, or one that broke off
"""

from __future__ import annotations

from clusters.base.errors import Invalid, KnodelError, NotFound

FAILED, USAGE, NOT_FOUND, NOT_IN_TIME = 1, 2, 3, 4
INTERRUPTED = 130  # by Ctrl-C, as a shell reports it


class CommandError(KnodelError):
    """A command that failed."""

    exit_code = FAILED


class UsageError(CommandError):
    """Wrong usage, or refused by validation before anything changed."""

    exit_code = USAGE


class NoSuchThing(CommandError):
    """What was named does not exist."""

    exit_code = NOT_FOUND


class NotInTime(CommandError):
    """What was waited for did not come in time."""

    exit_code = NOT_IN_TIME


class Unreachable(CommandError):
    """Nobody answered, not in time, or what answered broke off."""


def exit_code_of(error: KnodelError) -> int:
    """The exit code of any error of Knodel."""
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, Invalid) else FAILED
