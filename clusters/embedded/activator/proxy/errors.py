"""Errors of requests that cannot be forwarded."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class HoldQueueFull(KnodelError):
    """The hold queue of the revision is full."""


class HoldExpired(KnodelError):
    """No endpoint had a free slot in time."""


class StartFailed(KnodelError):
    """No replica of the revision can start."""


class UnknownRevision(KnodelError):
    """The revision is unknown or was removed."""
