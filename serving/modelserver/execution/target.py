"""The model and revision that serve a request, and the checks of the names that a request gives."""

from __future__ import annotations

from typing import Final

import msgspec

from serving.modelserver.base.errors import ResourceNotFound
from serving.modelserver.execution.inference import Inference

STATISTICS: Final = "stats"
SHOWN: Final = 63  # characters of a requested name that an error repeats: the longest valid name


class InferenceTarget(msgspec.Struct, frozen=True):
    """One revision of the model `name`."""

    name: str
    revision: str
    inference: Inference

    def check(self, name: str, version: str) -> None:
        """Raise ResourceNotFound when a request is for another model or version. An empty version matches any."""
        check_model(self.name, self.revision, name, version)


def check_model(name: str, revision: str, requested_name: str, requested_version: str) -> None:
    """Raise ResourceNotFound when the requested model or version is not this one. An empty version matches any."""
    if requested_name != name:
        raise unknown_model(requested_name)
    if requested_version and not is_version(requested_version, revision):
        raise ResourceNotFound(f"model {name!r} has no version {requested_version[:SHOWN]!r} here")


def is_version(version: str, revision: str) -> bool:
    """Return whether `version` means this revision: by its full name, or only by its number."""
    if version == revision:
        return True
    number = revision.rpartition("-")[2]
    return version.isascii() and version.isdigit() and number.isdigit() and version.lstrip("0") == number.lstrip("0")


def unknown_model(name: str) -> ResourceNotFound:
    """Return the error for a model that the server does not have. `stats` is Triton's path of statistics."""
    hint = "; statistics are at /metrics on the management port" if name == STATISTICS else ""
    return ResourceNotFound(f"unknown model {name[:SHOWN]!r}{hint}")
