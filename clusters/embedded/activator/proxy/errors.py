"""Why a request is not passed on."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class HoldQueueFull(KnodelError):
    """As many requests wait already as may."""


class HoldExpired(KnodelError):
    """No endpoint had room in time."""


class StartFailed(KnodelError):
    """No replica of the revision can start, as it is now."""


class UnknownRevision(KnodelError):
    """The control plane named no such revision, or took it away."""
