"""Which model a request of any protocol is for, and who infers."""

from __future__ import annotations

from typing import Final

import msgspec

from serving.modelserver.base.errors import NotFound
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.versions import is_version

STATISTICS: Final = "stats"
SHOWN: Final = 63  # characters of a caller's name that an error repeats: as many as a name has


class Target(msgspec.Struct, frozen=True):
    """The model `name` of this revision."""

    name: str
    revision: str
    inference: Inference

    def check(self, name: str, version: str) -> None:
        """Raise NotFound for another model or version; no version is any."""
        check_asked(self.name, self.revision, name, version)


def check_asked(name: str, revision: str, asked: str, version: str) -> None:
    """Raise NotFound when another model or version than this one is asked for; no version is any."""
    if asked != name:
        raise unknown(asked)
    if version and not is_version(version, revision):
        raise NotFound(f"model {name!r} has no version {version[:SHOWN]!r} here")


def unknown(name: str) -> NotFound:
    """Return the error of a request for a model that is not here: `stats` in Triton's path of statistics."""
    hint = "; statistics are at /metrics on the management port" if name == STATISTICS else ""
    return NotFound(f"unknown model {name[:SHOWN]!r}{hint}")
