"""The files that Envoy watches. Each is replaced atomically, and only when its content changes.

Envoy reacts to a rename onto the path. So new content is written to another file, which is renamed: Envoy never reads a
partial file, not even after a crash.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from clusters.gateway.config import Resource

MODE: Final = 0o600


class XdsFiles:
    """The files in one existing folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / name

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""
        return self.path(name).exists()

    def write(self, name: str, resource: Resource) -> bool:
        """Write `resource` and return whether the file changed. Raises OSError."""
        if self._written.get(name) == resource.version:
            return False
        path = self.path(name)
        try:
            changed = path.stat().st_size != len(resource.content) or path.read_bytes() != resource.content
        except FileNotFoundError:
            changed = True
        if changed:
            replace_file(path, resource.content)
        self._written[name] = resource.version
        return changed


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable only by its owner. Raises OSError.

    It is not synced to disk: after a power failure it is made again from the cluster's objects.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, for the mode
        file.write(content)
    temporary.replace(path)
