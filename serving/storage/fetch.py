"""Bringing an artifact to this machine: files are read where they are, all else is kept in a cache by its digest.

The one door of storage for the model server; blocking, to be called in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.storage import digest as digests
from serving.storage.addresses import shown
from serving.storage.archive import is_archive
from serving.storage.artifact import Artifact
from serving.storage.errors import StorageError
from serving.storage.local import VOLUMES, fetch_local, file_path, is_folder, volume_path
from serving.storage.progress import Progress, nobody_looks

__all__ = ["Artifact", "StorageOptions", "fetch", "options_from"]

CACHE_LIMIT: Final = 64 << 30  # bytes; some models of the size that one CPU replica serves
_MISSING: Final = {"s3": "s3", "gs": "gcs"}
"""By scheme, the extra that installs its library."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """`environ` has the credentials (`credentials.Credentials`); `cache_limit` in bytes; `volumes`: `local.VOLUMES`."""

    environ: Mapping[str, str]
    cache_limit: int = CACHE_LIMIT
    volumes: Path = VOLUMES


def options_from(environ: Mapping[str, str]) -> StorageOptions:
    """KNODEL_CACHE_LIMIT, in bytes, and the credentials. Raises StorageError."""
    text = environ.get("KNODEL_CACHE_LIMIT") or str(CACHE_LIMIT)
    if not (text.isascii() and text.isdigit()):
        raise StorageError(f"KNODEL_CACHE_LIMIT={text[:80]!r}: a number of bytes")
    return StorageOptions(environ, int(text))


def fetch(
    uri: str,
    digest: str,
    cache: Path,
    allow_hosts: frozenset[str],
    *,
    options: StorageOptions | None = None,
    progress: Progress = nobody_looks,
) -> Artifact:
    """Fetch and verify the artifact of a storage URI.

    `digest` is `sha256:…` or "" (nothing promised); `cache` is a folder for downloads, made when missing;
    `allow_hosts` are host names and addresses that may be private; `options` default to this process's environment;
    `progress` is told of downloads. Raises StorageError.
    """
    name = shown(uri)
    digests.check_form(name, digest)
    options = options or options_from(os.environ)
    scheme = uri.partition("://")[0]
    path = None
    if scheme in ("file", "pvc"):
        path = file_path(uri, name) if scheme == "file" else volume_path(uri, name, options.volumes)
        if not is_archive(path.name) or is_folder(path, name):
            return fetch_local(path, name, digest)
    from serving.storage.remote import Wanted, fetch_remote  # all below: ssl and more, which files do not need
    from serving.storage.sources import source_of

    try:
        want = Wanted(source_of(uri, path, allow_hosts, options.environ), uri, name, digest)
        return fetch_remote(want, cache, options.cache_limit, progress)
    except ModuleNotFoundError as error:
        if scheme not in _MISSING:
            raise
        extra = _MISSING[scheme]
        raise StorageError(
            f"{name}: needs {error.name}, which is not installed: pip install 'knodel[{extra}]'"
        ) from error
