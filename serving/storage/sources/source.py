"""What all remote storage has in common: a source, made from a URI, that brings its files to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.http import Downloader
from serving.storage.transfer.progress import Progress

PARTS: Final = "parts"  # of a workplace: downloads, complete or not
FOLDER: Final = "folder"  # of a workplace: what is made from them


@dataclass(frozen=True, slots=True)
class File:
    """One file, alone in its folder."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; `digest` is what a promise refers to, `digests` has each file's."""

    path: Path
    digests: Mapping[str, str]
    digest: str


class Source(Protocol):
    """Where an artifact comes from."""

    @property
    def filename(self) -> str:
        """The name of the file, if it should be one; "" where it cannot be."""
        ...

    @property
    def is_image(self) -> bool:
        """Whether a digest is that of an OCI manifest."""
        ...

    def bring(self, work: Path, progress: Progress) -> File | Folder:
        """Bring it into the folder `work`, where an earlier try may have left parts. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """What a source may use."""

    downloader: Downloader
    credentials: Credentials


def new_folder(work: Path) -> Path:
    """The empty folder `work / FOLDER`."""
    folder = work / FOLDER
    if folder.exists():  # of a try that was interrupted
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    return folder
