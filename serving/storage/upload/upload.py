"""Upload local model files below a prefix of a store: the entry point of uploads.

The URI is made from the digest of the files. Files that the store has already are not sent again, an interrupted upload
continues where it stopped, and an artifact that is not complete cannot be taken for a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from serving.storage.base.errors import StorageError, TransferInterrupted
from serving.storage.upload.artifact import Counter, LocalArtifact, read_artifact
from serving.storage.upload.content import Blob
from serving.storage.upload.prefix import ArtifactPrefix, parse_prefix
from serving.storage.upload.records import UploadRecords
from serving.storage.upload.uploader import Uploader

READING: Final = "reading"
UPLOADING: Final = "uploading"
UploadProgress = Callable[[str, int, int], None]
"""Called with the phase (READING or UPLOADING), the bytes that are done and their total, by one thread at a time."""
_EXTRAS: Final = {"s3": "s3", "gs": "gcs"}
"""The extra that installs the library of a scheme."""
_LISTING: Final = ".files"


@dataclass(frozen=True, slots=True)
class UploadedArtifact:
    """The result: what a Model needs as `storageUri` and `digest`, the size in bytes, and the bytes that were sent."""

    uri: str
    digest: str
    size: int
    sent: int = 0


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


def ignore_upload_progress(phase: str, done: int, total: int) -> None:
    """Ignore the progress of an upload."""


def locate(
    path: Path, prefix: str, file_name: str = "", progress: UploadProgress = ignore_upload_progress
) -> UploadedArtifact:
    """Return what `upload` would return for these files, without sending anything. Raises StorageError."""
    artifact = read_artifact(path, partial(progress, READING))
    return _located(artifact, parse_prefix(prefix), file_name or path.name)


def upload(
    path: Path,
    prefix: str,
    environ: Mapping[str, str],
    cache: Path,
    *,
    file_name: str = "",
    progress: UploadProgress = ignore_upload_progress,
    warn: Callable[[str], None] = lambda line: None,
) -> UploadedArtifact:
    """Upload the file or folder at `path` below `prefix`, and return its URI and digest.

    `prefix` is `artifacts.prefix` of the settings (`serving.storage.upload.prefix`). `environ` has the user's
    credentials. `cache` is a folder for records of interrupted uploads. A single file gets `file_name` in the store, by
    default its own name. `warn` gets lines about an upload that goes on.

    Raises StorageError: files that cannot be read, changed meanwhile or are too large; a missing bucket, missing rights
    or a missing library. Raises TransferInterrupted when the store cannot be reached: the same call continues.

    Example:
        upload(Path("iris.onnx"), "s3://models/team", os.environ, Path("cache")).uri  # "s3://models/team/sha256/…"
    """
    target = parse_prefix(prefix)
    artifact = read_artifact(path, partial(progress, READING))
    located = _located(artifact, target, file_name or path.name)
    counter = Counter(partial(progress, UPLOADING), artifact.size)
    records = UploadRecords(cache / "uploads", warn)
    try:
        with closing(Uploader(artifact.name, counter, records)) as uploader:
            _send(artifact, located, target, uploader, environ)
            return UploadedArtifact(located.uri, located.digest, located.size, uploader.sent)
    except TransferInterrupted as error:
        raise TransferInterrupted(f"{error}; the same command continues the upload") from error
    except ModuleNotFoundError as error:
        if target.scheme not in _EXTRAS:
            raise
        raise StorageError(
            f"{prefix}: needs {error.name}, which is not installed: pip install 'knodel[{_EXTRAS[target.scheme]}]'"
        ) from error


def _located(artifact: LocalArtifact, target: ArtifactPrefix, file_name: str) -> UploadedArtifact:
    rest = "/" if artifact.folder else f"/{file_name}"
    return UploadedArtifact(target.uri(target.key(artifact.digest, rest)), artifact.digest, artifact.size)


def _send(
    artifact: LocalArtifact, located: UploadedArtifact, target: ArtifactPrefix, uploader: Uploader,
    environ: Mapping[str, str],
) -> None:  # fmt: skip
    store = _store(target, uploader, environ)
    first = located.uri.removeprefix(target.uri(""))
    if not artifact.folder:
        (blob,) = artifact.files
        if store.has(first, blob):
            uploader.counter.add(blob.size)
        else:
            store.upload({first: blob})
        return
    blobs: dict[str, Blob] = {first + blob.path: blob for blob in artifact.files}
    listing = target.key(artifact.digest, _LISTING)
    sizes = store.sizes(target.key(artifact.digest, ""))
    if sizes is None:
        found = uploader.run_all([partial(store.has, key, blob) for key, blob in blobs.items()])
        sizes = {key: blob.size for (key, blob), has in zip(blobs.items(), found, strict=True) if has}
    missing = {key: blob for key, blob in blobs.items() if sizes.get(key) != blob.size}
    uploader.counter.add(artifact.size - sum(blob.size for blob in missing.values()))
    store.upload(missing)
    if missing or listing not in sizes:
        store.write(listing, artifact.listing())


def _store(target: ArtifactPrefix, uploader: Uploader, environ: Mapping[str, str]) -> ObjectUploads:
    if target.scheme == "gs":
        from serving.storage.upload.gs import GoogleUploads  # heavy

        return GoogleUploads(target, uploader, environ)
    from serving.storage.upload.s3 import S3Uploads  # heavy

    return S3Uploads(target, uploader, environ)
