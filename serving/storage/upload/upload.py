"""Upload local model files below a prefix of a store: the entry point of uploads.

The URI is made from the digest of the files. Files that the store has already are not sent again, an interrupted upload
continues where it stopped, and an artifact that is not complete cannot be taken for a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from serving.storage.archives.archive import is_archive, unpack
from serving.storage.base.errors import StorageError, TransferInterrupted
from serving.storage.upload.artifact import Counter, find_files, hash_files
from serving.storage.upload.image import make_image
from serving.storage.upload.objects import PlannedObjects
from serving.storage.upload.prefix import parse_prefix
from serving.storage.upload.records import UploadRecords
from serving.storage.upload.uploader import Uploader

READING: Final = "reading"
UPLOADING: Final = "uploading"
UploadProgress = Callable[[str, int, int], None]
"""Called with the phase (READING or UPLOADING), the bytes that are done and their total, by one thread at a time."""
_EXTRAS: Final = {"s3": "s3", "gs": "gcs"}
"""The extra that installs the library of a scheme."""


@dataclass(frozen=True, slots=True)
class UploadedArtifact:
    """The result: what a Model needs as `storageUri` and `digest`, the size in bytes, and the bytes that were sent."""

    uri: str
    digest: str
    size: int
    sent: int = 0


class Plan(Protocol):
    """What an upload stores where."""

    @property
    def uri(self) -> str:
        """The storage URI."""
        ...

    @property
    def digest(self) -> str:
        """The digest that replicas compute."""
        ...

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...

    def send(self, uploader: Uploader, environ: Mapping[str, str]) -> None:
        """Store what the store does not have. Raises StorageError."""
        ...


def ignore_upload_progress(phase: str, done: int, total: int) -> None:
    """Ignore the progress of an upload."""


def locate(
    path: Path, prefix: str, file_name: str = "", progress: UploadProgress = ignore_upload_progress
) -> UploadedArtifact:
    """Return what `upload` would return for these files, without sending anything. Raises StorageError."""
    with _plan(path, prefix, file_name, progress) as plan:
        return UploadedArtifact(plan.uri, plan.digest, plan.size)


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
    records = UploadRecords(cache / "uploads", warn)
    scheme = prefix.partition("://")[0]
    try:
        with _plan(path, prefix, file_name, progress) as plan:
            counter = Counter(partial(progress, UPLOADING), plan.size)
            with closing(Uploader(str(path), counter, records)) as uploader:
                plan.send(uploader, environ)
                return UploadedArtifact(plan.uri, plan.digest, plan.size, uploader.sent)
    except TransferInterrupted as error:
        raise TransferInterrupted(f"{error}; the same command continues the upload") from error
    except ModuleNotFoundError as error:
        if scheme not in _EXTRAS:
            raise
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        remedy = f"`{install_command(f'knodel[{_EXTRAS[scheme]}]')}`"
        raise StorageError(f"{prefix}: needs {error.name}, which is not installed: {remedy}") from error


@contextmanager
def _plan(path: Path, prefix: str, file_name: str, progress: UploadProgress) -> Iterator[Plan]:
    """Yield the plan for the files at `path`, which are read for their digests."""
    target = parse_prefix(prefix)
    report = partial(progress, READING)
    name = file_name or path.name
    if target.scheme != "oci":
        yield PlannedObjects(hash_files(find_files(path), report), target, name)
        return
    from serving.storage.upload.oci import PlannedImage

    if not is_archive(path.name) or path.is_dir():
        yield PlannedImage(make_image(find_files(path, name), report), prefix)
        return
    with TemporaryDirectory(prefix="knodel-") as folder:  # an image has the files of an archive, as replicas unpack it
        unpack(path, path.name, Path(folder), str(path))
        yield PlannedImage(make_image(replace(find_files(Path(folder)), name=str(path)), report), prefix)
