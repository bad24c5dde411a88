"""A fetched artifact, which engines load: reads return the verified bytes, even if the files change meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from serving.storage.base import digest, disk
from serving.storage.base.errors import StorageError


class Artifact(NamedTuple):  # defined 7 times as fast as a dataclass, at each start of a server
    """One file or a folder.

    path      of a file, only its name is used; of a folder, its real path, and nothing outside of it is read
    content   of a file, its verified bytes; None for a folder
    digests   of a folder, the digest of each file by relative path; empty for a folder that is read in place and whose
              digest the caller did not give
    uri       the URI, in the form for messages
    lock      the lock that keeps a folder in the cache while the artifact exists
    digest    of the whole artifact, in the form of a Model's `digest` (`serving.storage.base.digest`)
    """

    path: Path
    content: bytes | None
    digests: Mapping[str, str] = MappingProxyType({})
    uri: str = "the artifact"
    lock: object = None
    digest: str = ""

    def names(self) -> list[str]:
        """Return the sorted relative paths of a folder's files, or the name of a single file. Raises StorageError."""
        if self.content is not None:
            return [self.path.name]
        return sorted(self.digests) or disk.list_files(self.path, self.uri)

    def below(self, folder: str) -> Artifact:
        """Return the files below a subfolder (relative, POSIX) as a folder of their own, with the same URI and digest.

        Call it only for a subfolder of `names`, which refuses links.
        """
        inside = {
            name.removeprefix(f"{folder}/"): found
            for name, found in self.digests.items()
            if name.startswith(f"{folder}/")
        }
        return self._replace(path=self.path / folder, digests=inside)

    def only(self, name: str) -> Artifact:
        """Return a file of the folder as an artifact of its own, with the same URI and digest. Raises StorageError."""
        return self._replace(path=self.path / name, content=self.read(name), digests=MappingProxyType({}))

    def read(self, name: str) -> bytes:
        """Return the content of a file of the folder. Raises StorageError if it is absent or has another digest."""
        if self.content is not None and name == self.path.name:
            return self.content
        if self.digests and name not in self.digests:
            raise StorageError(f"{self.uri}: has no file {name!r}")
        content = disk.read_inside(self.path, name, self.uri)
        if self.digests and digest.of_bytes(content) != self.digests[name]:
            raise StorageError(f"{self.uri}: {name!r} was changed while the model was loaded: deploy again")
        return content
