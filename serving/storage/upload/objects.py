"""Upload an artifact to an object store: which objects it has, and in which order they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from serving.storage.upload.artifact import LocalArtifact
from serving.storage.upload.content import Blob
from serving.storage.upload.prefix import ArtifactPrefix
from serving.storage.upload.uploader import Uploader

_LISTING: Final = ".files"


class ObjectUploads(Protocol):
    """Uploads to one bucket of an object store. All methods raise StorageError."""

    def has(self, key: str, blob: Blob) -> bool:
        """Return whether the store has the whole object."""
        ...

    def sizes(self, prefix: str) -> dict[str, int] | None:
        """Return the sizes of all objects below a prefix by key; None without the right to list them."""
        ...

    def upload(self, blobs: Mapping[str, Blob]) -> None:
        """Store objects by their keys; an object appears when all its parts are there."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Store a small object."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedObjects:
    """The objects of an artifact below a prefix; `file_name` is that of a single file in the store."""

    artifact: LocalArtifact
    prefix: ArtifactPrefix
    file_name: str

    @property
    def key(self) -> str:
        """The key of the file, or of the folder with a slash at its end."""
        return self.prefix.key(self.artifact.digest, "/" if self.artifact.folder else f"/{self.file_name}")

    @property
    def uri(self) -> str:
        """The storage URI."""
        return self.prefix.uri(self.key)

    @property
    def digest(self) -> str:
        """The digest that replicas compute."""
        return self.artifact.digest

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.artifact.size

    def send(self, uploader: Uploader, environ: Mapping[str, str]) -> None:
        """Store the objects that the store does not have; of a folder, its listing last. Raises StorageError."""
        store = _store(self.prefix, uploader, environ)
        if not self.artifact.folder:
            (blob,) = self.artifact.files
            if store.has(self.key, blob):
                uploader.counter.add(blob.size)
            else:
                store.upload({self.key: blob})
            return
        blobs = {self.key + blob.path: blob for blob in self.artifact.files}
        sizes = store.sizes(self.prefix.key(self.digest, ""))
        if sizes is None:
            found = uploader.run_all([partial(store.has, key, blob) for key, blob in blobs.items()])
            sizes = {key: blob.size for (key, blob), has in zip(blobs.items(), found, strict=True) if has}
        missing = {key: blob for key, blob in blobs.items() if sizes.get(key) != blob.size}
        uploader.counter.add(self.size - sum(blob.size for blob in missing.values()))
        store.upload(missing)
        listing = self.prefix.key(self.digest, _LISTING)
        if missing or listing not in sizes:
            store.write(listing, self.artifact.listing())


def _store(prefix: ArtifactPrefix, uploader: Uploader, environ: Mapping[str, str]) -> ObjectUploads:
    if prefix.scheme == "gs":
        from serving.storage.upload.gs import GoogleUploads  # heavy

        return GoogleUploads(prefix, uploader, environ)
    from serving.storage.upload.s3 import S3Uploads  # heavy

    return S3Uploads(prefix, uploader, environ)
