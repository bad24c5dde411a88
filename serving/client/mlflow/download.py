"""Download artifacts that a tracking server of MLflow gives out itself (`mlflow-artifacts:`)."""

from __future__ import annotations

import posixpath
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from serving.client.errors import ClientError, UsageError
from serving.client.mlflow.tracking import TrackingServer
from serving.storage.transfer.progress import Progress

MOST_FOLDERS: Final = 1000
"""Folders of one artifact that are listed."""
LONGEST: Final = 7 * 86_400.0
"""Seconds after which the unfinished folder of another process is deleted."""
_UNFINISHED: Final = "download-"


def download_artifacts(server: TrackingServer, path: str, uri: str, cache: Path, progress: Progress) -> Path:
    """Download all files below a path of the server, and return their folder inside `cache`.

    The folder is named by the digest of the files, so that it never changes, and appears when all of them are there.
    Raises UsageError, DoesNotExist, ClientError.
    """
    from serving.storage.base import digest as digests
    from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted  # heavy, as the others
    from serving.storage.sources.folder_download import RemoteFile, download_files
    from serving.storage.sources.source import FOLDER
    from serving.storage.transfer.client import StoreRequest
    from serving.storage.transfer.downloader import Downloader
    from serving.storage.transfer.limits import TransferDeadline, TransferLimits

    downloads = cache / "mlflow"
    limits = TransferLimits()
    work: Path | None = None
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        for left in downloads.glob(f"{_UNFINISHED}*"):  # by a process that was killed
            with suppress(FileNotFoundError):  # another process has just finished it
                if left.stat().st_mtime < time.time() - LONGEST:
                    shutil.rmtree(left, ignore_errors=True)
        work = Path(mkdtemp(prefix=_UNFINISHED, dir=downloads))
        files = [
            RemoteFile(
                file.removeprefix(f"{path}/"),
                partial(StoreRequest, server.file_url(file), uri, {}, server.secrets),
                size,
            )
            for file, size in _list(server, path, uri)
        ]
        deadline = TransferDeadline(uri, limits.total)
        with closing(Downloader(frozenset({server.address.host}), deadline, limits)) as downloader:
            if server.address.tls is not None:
                downloader.client.pool.trust(server.address.host, server.address.tls)
            found = download_files(files, work, downloader, uri, progress)
        name = digests.of_folder(found).removeprefix(digests.PREFIX)
        place = downloads / name / (posixpath.basename(path) or "artifacts")
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            try:
                (work / FOLDER).rename(place)
            except OSError:
                if not place.is_dir():  # else another process has just downloaded the same files
                    raise
    except (HttpStatusError, TransferInterrupted) as error:
        raise ClientError(str(error)) from error
    except StorageError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise ClientError(f"{uri} cannot be downloaded to {downloads} ({error.strerror}): make room") from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
    return place


def _list(server: TrackingServer, path: str, uri: str) -> Iterator[tuple[str, int | None]]:
    """Yield the path and the size of each file below a folder. Raises ClientError."""
    folders = [path]
    for _ in range(MOST_FOLDERS):
        if not folders:
            return
        folder = folders.pop()
        for entry in server.files(folder):
            name = entry.get("path") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
                raise ClientError(f"{uri}: the tracking server lists a file without a name: refused")
            inside = posixpath.join(folder, name)
            if entry.get("is_dir"):
                folders.append(inside)
            else:
                size = str(entry.get("file_size", ""))
                yield inside, int(size) if size.isascii() and size.isdigit() else None
    raise ClientError(f"{uri} has more than {MOST_FOLDERS} folders: name the model's own folder")
