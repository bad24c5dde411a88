"""A fetched artifact: what engines load. Its bytes are the verified ones, whatever happens to the files meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from serving.storage.base import digest, disk
from serving.storage.base.errors import StorageError


class Artifact(msgspec.Struct, frozen=True):
    """One file, or a folder.

    path      the file, only for its name; or the folder, by its real path: what does not lie below it is not read
    content   of a file: the very bytes that were verified, read once; None for a folder
    digests   of a folder: relative path → digest of each of its files when it was fetched; {} when nothing was promised
              of a folder that is read where it is
    uri       what it was fetched from, as shown to people
    hold      what keeps a folder in the cache for as long as the artifact lives
    digest    of the whole, in the form in which a Model promises it (`serving.storage.base.digest`)
    """

    path: Path
    content: bytes | None
    digests: Mapping[str, str] = msgspec.field(default_factory=dict)
    uri: str = "the artifact"
    hold: object = None
    digest: str = ""

    def names(self) -> list[str]:
        """The relative paths of a folder's files, sorted; of a file its own name. Raises StorageError."""
        if self.content is not None:
            return [self.path.name]
        return sorted(self.digests) or disk.list_files(self.path, self.uri)

    def read(self, name: str) -> bytes:
        """The bytes of one file of the folder. Raises StorageError when they are not the verified ones."""
        if self.content is not None and name == self.path.name:
            return self.content
        if self.digests and name not in self.digests:
            raise StorageError(f"{self.uri}: has no file {name!r}")
        content = disk.read_inside(self.path, name, self.uri)
        if self.digests and digest.of_bytes(content) != self.digests[name]:
            raise StorageError(f"{self.uri}: {name!r} was changed while the model was loaded: deploy again")
        return content
