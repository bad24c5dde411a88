"""Fetch the artifact of a storage URI: the entry point of storage for the model server.

Local files are read in place, or from the copy that was kept when the version was deployed. Other artifacts go through
a cache. `fetch` blocks, so call it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from clusters.base.redact import redact_url
from serving.storage.archives.archive import is_archive
from serving.storage.base import digest as digests
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError
from serving.storage.base.service import service_url
from serving.storage.sources.local import VOLUMES, LocalPath, fetch_local, file_uri_path, is_folder, pvc_uri_path
from serving.storage.transfer.progress import Progress, ignore_progress
from serving.storage.transfer.urls import with_lower_scheme

if TYPE_CHECKING:
    from serving.storage.transfer.limits import TransferLimits

__all__ = ["Artifact", "StorageOptions", "fetch", "options_from"]

CACHE_LIMIT: Final = 64 << 30  # bytes; several models of the size that one CPU replica can serve
FILES_AT_ONCE: Final = "KNODEL_FILES_AT_ONCE"
MOST_FILES_AT_ONCE: Final = 64
_LONGEST_NUMBER: Final = 18  # digits
_EXTRAS: Final = {"s3": "s3", "gs": "gcs"}
"""The extra that installs the library of a scheme."""


class StorageOptions(msgspec.Struct, frozen=True):
    """Options of `fetch`.

    environ       environment variables with credentials (`credentials.Credentials`)
    cache_limit   limit of the cache in bytes
    volumes       folder of mounted claims (`local.VOLUMES`)
    limits        limits of one download; None for the defaults
    kept          folder with copies of local files (`serving.storage.kept`), of at most `kept_limit` bytes; None to
                  read files in place
    """

    environ: Mapping[str, str]
    cache_limit: int = CACHE_LIMIT
    volumes: Path = VOLUMES
    limits: TransferLimits | None = None
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
        from serving.storage.transfer.limits import TransferLimits

        count = _number(environ, FILES_AT_ONCE, 0, "of files")
        if not 1 <= count <= MOST_FILES_AT_ONCE:
            raise StorageError(f"{FILES_AT_ONCE}={count} is out of range: set it to 1 to {MOST_FILES_AT_ONCE}")
        options = msgspec.structs.replace(options, limits=TransferLimits(files_at_once=count))
    kept = environ.get("KNODEL_KEPT")
    if kept:
        from serving.storage.kept import size_limit

        options = msgspec.structs.replace(options, kept=Path(kept), kept_limit=size_limit(environ))
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
    """Fetch and verify the artifact of a storage URI. Raises StorageError.

    `digest` is the expected digest (`sha256:…`), or "" for any. `cache` is a folder for downloads, created if absent.
    `allow_hosts` are host names and addresses that may be private. `options` default to the environment of the process.
    `progress` is called during downloads.

    Example:
        artifact = fetch("https://models.example/m.onnx", "", Path("cache"), frozenset())
    """
    uri = with_lower_scheme(uri)
    name = redact_url(uri)
    digests.check_form(name, digest)
    options = options or options_from(os.environ)
    if service_url(uri):
        return Artifact(Path("service"), b"", uri=name)  # no files: the engine connects to the service
    scheme = uri.partition("://")[0]
    local = None
    if scheme in ("file", "pvc"):
        local = file_uri_path(uri, name) if scheme == "file" else pvc_uri_path(uri, name, options.volumes)
        if scheme == "file" and options.kept is not None:
            from serving.storage.kept import fetch_kept

            return fetch_kept(local, name, digest, options.kept, options.kept_limit)
        if not is_archive(local.path.name) or is_folder(local.path, name):
            return fetch_local(local, name, digest)
    return _fetch_through_cache(uri, digest, local, cache, allow_hosts, options, progress)


def _fetch_through_cache(
    uri: str, digest: str, archive: LocalPath | None, cache: Path, allow_hosts: frozenset[str], options: StorageOptions,
    progress: Progress,
) -> Artifact:  # fmt: skip
    from serving.storage.remote import ArtifactRequest, fetch_remote
    from serving.storage.sources.source import SourceContext, source_for
    from serving.storage.transfer.credentials import Credentials
    from serving.storage.transfer.downloader import Downloader  # imports ssl, which local files do not need
    from serving.storage.transfer.limits import TransferDeadline, TransferLimits

    name = redact_url(uri)
    limits = options.limits or TransferLimits()
    deadline = TransferDeadline(name, limits.total)
    try:
        with closing(Downloader(allow_hosts, deadline, limits)) as downloader:
            context = SourceContext(downloader, Credentials(options.environ))
            request = ArtifactRequest(source_for(uri, archive, context), uri, name, digest, deadline)
            return fetch_remote(request, cache, options.cache_limit, progress)
    except ModuleNotFoundError as error:
        scheme = uri.partition("://")[0]
        if scheme not in _EXTRAS:
            raise
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        remedy = install_command(f"knodel[{_EXTRAS[scheme]}]")
        raise StorageError(f"{name}: needs {error.name}, which is not installed: {remedy}") from error
