"""`file://` and `pvc://`: a a file or folder, read where it is. An archive is copied to the cache and unpacked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from serving.storage import digest as digests
from serving.storage import disk
from serving.storage.artifact import Artifact
from serving.storage.errors import StorageError

VOLUMES: Final = Path("/mnt/pvc")
"""Where the claims of `pvc://CLAIM/PATH` are mounted, each at its name."""
_CLAIM: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain


def fetch_local(path: Path, uri: str, digest: str) -> Artifact:
    """The file or folder at `path`, verified. Raises StorageError."""
    if is_folder(path, uri):
        files = disk.digest_files(path, uri) if digest else {}
        if digest:
            digests.check(uri, digest, digests.of_folder(files))
        return Artifact(path, None, files, uri)
    content = disk.read_file(path, uri)
    if digest:
        digests.check(uri, digest, digests.of_bytes(content))
    return Artifact(path, content, {}, uri)


def is_folder(path: Path, uri: str) -> bool:
    """Whether there is a folder at `path`. Raises StorageError when that cannot be seen."""
    try:
        return path.is_dir()
    except OSError as error:
        raise StorageError(f"{uri}: cannot be opened ({error.strerror}): check the path and its rights") from error


def file_path(uri: str, name: str) -> Path:
    """The path that a `file://` URI names. Raises StorageError."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise StorageError(f"{name}: is no URL ({error}): write file:///PATH") from error
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageError(f"{name}: a file is named by its whole path: write file:///PATH")
    if parts.query or parts.fragment or "\0" in unquote(parts.path):
        raise StorageError(f"{name}: ? and # in a path are written %3F and %23, and NUL is refused")
    return Path(unquote(parts.path))


def volume_path(uri: str, name: str, volumes: Path) -> Path:
    """The path that a `pvc://CLAIM/PATH` URI names, below `volumes`. Raises StorageError."""
    claim, _, rest = uri.partition("://")[2].partition("/")
    rest = unquote(rest)
    if not _CLAIM.fullmatch(claim) or not rest.isprintable() or "?" in uri or "#" in uri:
        raise StorageError(f"{name}: write pvc://CLAIM/PATH")
    root = volumes / claim
    if not is_folder(root, name):
        raise StorageError(f"{name}: the claim {claim!r} is not mounted: check that it exists in the model's namespace")
    try:
        path = (root / rest.strip("/")).resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        raise StorageError(f"{name}: is not in the claim: check the path") from error
    if not path.is_relative_to(root.resolve()):
        raise StorageError(f"{name}: leads outside of the claim: refused")
    return path
