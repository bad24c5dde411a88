"""Bringing an artifact to this machine: files are read where they are, or from a copy that was kept when a version was
deployed; all else is kept in a cache by its digest.

The one door of storage for the model server; blocking, to be called in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from serving.storage.archives.archive import is_archive
from serving.storage.base import digest as digests
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError
from serving.storage.sources.local import VOLUMES, Place, fetch_local, file_place, is_folder, volume_place
from serving.storage.transfer.addresses import shown, with_lower_scheme
from serving.storage.transfer.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from serving.storage.transfer.limits import DownloadLimits

__all__ = ["Artifact", "StorageOptions", "fetch", "options_from"]

CACHE_LIMIT: Final = 64 << 30  # bytes; some models of the size that one CPU replica serves
FILES_AT_ONCE: Final = "KNODEL_FILES_AT_ONCE"
MOST_FILES_AT_ONCE: Final = 64
_LONGEST_NUMBER: Final = 18  # digits
_MISSING: Final = {"s3": "s3", "gs": "gcs"}
"""By scheme, the extra that installs its library."""


class StorageOptions(msgspec.Struct, frozen=True):
    """What a fetch goes by.

    environ       has the credentials (`credentials.Credentials`)
    cache_limit   bytes
    volumes       `local.VOLUMES`
    limits        of one download; None: the defaults
    kept          folder with copies of local files (`serving.storage.kept`), at most `kept_limit` bytes; None: files
                  are read where they are
    """

    environ: Mapping[str, str]
    cache_limit: int = CACHE_LIMIT
    volumes: Path = VOLUMES
    limits: DownloadLimits | None = None
    kept: Path | None = None
    kept_limit: int = 0


def options_from(environ: Mapping[str, str]) -> StorageOptions:
    """Return the options that environment variables set; `environ` also has the credentials.

        KNODEL_CACHE_LIMIT        bytes of the cache
        KNODEL_FILES_AT_ONCE      files of one model that are downloaded at the same time, 1 to 64
        KNODEL_KEPT               folder of kept copies; KNODEL_KEPT_LIMIT bounds it

    Raises StorageError for a value that is not a number.
    """
    options = StorageOptions(environ, _number(environ, "KNODEL_CACHE_LIMIT", CACHE_LIMIT, "of bytes"))
    if environ.get(FILES_AT_ONCE):
        from serving.storage.transfer.limits import DownloadLimits

        count = _number(environ, FILES_AT_ONCE, 0, "of files")
        if not 1 <= count <= MOST_FILES_AT_ONCE:
            raise StorageError(f"{FILES_AT_ONCE}={count} is out of range: set it to 1 to {MOST_FILES_AT_ONCE}")
        options = msgspec.structs.replace(options, limits=DownloadLimits(files_at_once=count))
    kept = environ.get("KNODEL_KEPT")
    if kept:
        from serving.storage.kept import limit_of

        options = msgspec.structs.replace(options, kept=Path(kept), kept_limit=limit_of(environ))
    return options


def _number(environ: Mapping[str, str], name: str, default: int, unit: str) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise StorageError(f"{name}={text[:80]!r} is not a number {unit}: set it to digits alone")
    return int(text)


def fetch(
    uri: str,
    digest: str,
    cache: Path,
    allow_hosts: frozenset[str],
    *,
    options: StorageOptions | None = None,
    progress: Progress = ignore_progress,
) -> Artifact:
    """Fetch and verify the artifact of a storage URI.

    `digest` is `sha256:…` or "" (nothing promised); `cache` is a folder for downloads, made when missing;
    `allow_hosts` are host names and addresses that may be private; `options` default to this process's environment;
    `progress` is told of downloads. Raises StorageError.
    """
    uri = with_lower_scheme(uri)
    name = shown(uri)
    digests.check_form(name, digest)
    options = options or options_from(os.environ)
    scheme = uri.partition("://")[0]
    place = None
    if scheme in ("file", "pvc"):
        place = file_place(uri, name) if scheme == "file" else volume_place(uri, name, options.volumes)
        if scheme == "file" and options.kept is not None:
            from serving.storage.kept import fetch_kept

            return fetch_kept(place, name, digest, options.kept, options.kept_limit)
        if not is_archive(place.path.name) or is_folder(place.path, name):
            return fetch_local(place, name, digest)
    return _brought(uri, digest, place, cache, allow_hosts, options, progress)


def _brought(
    uri: str, digest: str, place: Place | None, cache: Path, allow_hosts: frozenset[str], options: StorageOptions,
    progress: Progress,
) -> Artifact:  # fmt: skip
    from serving.storage.remote import Wanted, fetch_remote
    from serving.storage.sources.source import Access
    from serving.storage.sources.sources import source_of
    from serving.storage.transfer.credentials import Credentials  # and ssl and more, which files do not need
    from serving.storage.transfer.deadline import Deadline
    from serving.storage.transfer.http import Downloader
    from serving.storage.transfer.limits import DownloadLimits

    name = shown(uri)
    limits = options.limits or DownloadLimits()
    deadline = Deadline(name, limits.total)
    try:
        with closing(Downloader(allow_hosts, deadline, limits)) as downloader:
            access = Access(downloader, Credentials(options.environ))
            want = Wanted(source_of(uri, place, access), uri, name, digest, deadline)
            return fetch_remote(want, cache, options.cache_limit, progress)
    except ModuleNotFoundError as error:
        scheme = uri.partition("://")[0]
        if scheme not in _MISSING:
            raise
        extra = _MISSING[scheme]
        raise StorageError(
            f"{name}: needs {error.name}, which is not installed: pip install 'knodel[{extra}]'"
        ) from error
