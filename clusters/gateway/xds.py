"""The files that Envoy follows: each replaced whole, and only when its content changed.

Envoy's watch reacts to a rename onto the path, so a new content is written beside it and renamed: it never reads half a
file, neither in operation nor after a crash.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from clusters.gateway.config import Resource

MODE: Final = 0o600


class XdsFiles:
    """Files of one folder, which must exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """Where the file of that name stands."""
        return self.folder / name

    def exists(self, name: str) -> bool:
        """Whether it was ever written."""
        return self.path(name).exists()

    def write(self, name: str, resource: Resource) -> bool:
        """Put `resource` in force; False when the file has this very content. Raises OSError."""
        if self._written.get(name) == resource.version:
            return False
        path = self.path(name)
        changed = not _holds(path, resource.content)
        if changed:
            replace_file(path, resource.content)
        self._written[name] = resource.version
        return changed


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file whole, readable by its owner alone. Raises OSError.

    Not synced to the disk: after a loss of power it is made anew from the cluster's objects.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, for the mode
        file.write(content)
    temporary.replace(path)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False
