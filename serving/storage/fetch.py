"""Bringing an artifact to this machine: `file://` is read where it is, `http(s)://` is kept in a cache by its digest.

The one door of storage for the model server; blocking, to be called in a thread.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from serving.storage import digest as digests
from serving.storage import disk
from serving.storage.addresses import shown
from serving.storage.artifact import Artifact
from serving.storage.cache import fetch_http
from serving.storage.errors import StorageError

__all__ = ["Artifact", "fetch"]


def fetch(uri: str, digest: str, cache: Path, allow_hosts: frozenset[str]) -> Artifact:
    """Fetch and verify the artifact of a storage URI.

    `digest` is `sha256:…` or "" (nothing promised); `cache` is a folder for downloads, made when missing;
    `allow_hosts` are host names and addresses that may be private. Raises StorageError.
    """
    name = shown(uri)
    digests.check_form(name, digest)
    scheme = uri.partition("://")[0]
    if scheme == "file":
        return _fetch_file(_local_path(uri, name), name, digest)
    if scheme in ("http", "https"):
        return fetch_http(uri, digest, cache, allow_hosts)
    raise StorageError(f"{name}: storage of this kind is not supported: use file://, http:// or https://")


def _fetch_file(path: Path, uri: str, digest: str) -> Artifact:
    if path.is_dir():
        files = disk.digest_files(path, uri) if digest else {}
        if digest:
            digests.check(uri, digest, digests.of_folder(files))
        return Artifact(path, None, files, uri)
    content = disk.read_file(path, uri)
    if digest:
        digests.check(uri, digest, digests.of_bytes(content))
    return Artifact(path, content, {}, uri)


def _local_path(uri: str, name: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageError(f"{name}: a file is named by its whole path: write file:///PATH")
    if parts.query or parts.fragment or "\0" in unquote(parts.path):
        raise StorageError(f"{name}: ? and # in a path are written %3F and %23, and NUL is refused")
    return Path(unquote(parts.path))
