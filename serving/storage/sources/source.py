"""The interface of remote stores, and the source of each URI scheme."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from clusters.base.redact import redact_url
from serving.storage.base.errors import StorageError
from serving.storage.sources.local import LocalPath
from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.downloader import Downloader
from serving.storage.transfer.progress import Progress

PARTS: Final = "parts"  # of a work folder: downloads, complete or partial
FOLDER: Final = "folder"  # of a work folder: the model's files, from the parts
SCHEMES: Final = {
    "http": ("serving.storage.sources.single_file", "HttpFileSource"),
    "https": ("serving.storage.sources.single_file", "HttpFileSource"),
    "s3": ("serving.storage.sources.s3", "s3_source"),
    "gs": ("serving.storage.sources.gs", "gs_source"),
    "hf": ("serving.storage.sources.hugging_face", "HuggingFaceSource"),
    "oci": ("serving.storage.sources.oci", "OciImageSource"),
}
"""Module and name of the factory of a source, called with the URI and a SourceContext. It is imported on first use."""
WEB: Final = ("http", "https")
"""Schemes whose servers resolve `..` in a path."""


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """A file with its digest."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class DownloadedFolder:
    """A folder with the digest of each file by relative path. `digest` is the one that a Model's `digest` refers to."""

    path: Path
    digests: Mapping[str, str]
    digest: str


class Source(Protocol):
    """The artifact at one URI."""

    @property
    def filename(self) -> str:
        """The name of the file if the artifact may be one; "" if it cannot be."""
        ...

    @property
    def is_image(self) -> bool:
        """True if the artifact's digest is that of an OCI manifest."""
        ...

    def download(self, work: Path, progress: Progress) -> DownloadedFile | DownloadedFolder:
        """Download the artifact to the folder `work`, and resume parts of an earlier attempt. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The downloader and credentials of a source."""

    downloader: Downloader
    credentials: Credentials


def source_for(uri: str, archive: LocalPath | None, context: SourceContext) -> Source:
    """Return the source of a URI, or of the local archive at `archive`.

    Raises StorageError, and ModuleNotFoundError when the library of the scheme is not installed.
    """
    if archive is not None:
        from serving.storage.sources.single_file import LocalArchiveSource

        return LocalArchiveSource(archive, redact_url(uri))
    scheme, _, rest = uri.partition("://")
    if scheme not in WEB and ".." in rest.split("/"):
        raise StorageError(f"{redact_url(uri)}: must not contain '..': write the path as it is")
    if scheme not in SCHEMES:
        known = ", ".join(f"{known}://" for known in ("file", "pvc", *SCHEMES))
        raise StorageError(f"{redact_url(uri)}: the scheme is not supported: use one of {known}")
    module, name = SCHEMES[scheme]
    factory: Callable[[str, SourceContext], Source] = getattr(import_module(module), name)
    return factory(uri, context)


def new_folder(work: Path) -> Path:
    """Create the empty folder `work / FOLDER` and return its path."""
    folder = work / FOLDER
    if folder.exists():  # of an interrupted attempt
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    return folder
