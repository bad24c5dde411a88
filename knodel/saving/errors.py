"""The error of an object that cannot be saved."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class NotSaved(KnodelError):
    """The object cannot be saved as files that the model server loads. Nothing was written."""
