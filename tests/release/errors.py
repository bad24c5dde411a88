"""Errors of the release tools."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class ReleaseError(KnodelError):
    """A release cannot be made from this checkout, or a check of it failed."""
