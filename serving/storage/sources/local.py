"""`file://` and `pvc://`: a file or folder, read in location. Archives are copied to the cache and unpacked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import OutsideFolder, StorageError

VOLUMES: Final = Path("/mnt/pvc")
"""Folder with the mounted claims of `pvc://CLAIM/PATH`, each in a folder of its name."""


class LocalPath(NamedTuple):  # defined 7 times as fast as a dataclass, at each start of a server
    """The path of a file or folder; with a `root` (a real path), nothing outside of the root is read."""

    path: Path
    root: Path | None = None


def fetch_local(location: LocalPath, uri: str, digest: str) -> Artifact:
    """Read and verify a file or folder. Raises StorageError."""
    if is_folder(location.path, uri):
        folder = real_folder(location, uri)
        files = disk.digest_files(folder, uri)
        found = digests.of_folder(files)
        digests.check(uri, digest, found)
        # Without a digest the files are loaded in place: a copy of large weights takes time and room.
        return Artifact(folder, None, files if digest else {}, uri, digest=found)
    content = disk.read_file(location.path, uri, location.root)
    found = digests.of_bytes(content)
    digests.check(uri, digest, found)
    return Artifact(location.path, content, {}, uri, digest=found)


def is_folder(path: Path, uri: str) -> bool:
    """Return whether there is a folder at `path`. Raises StorageError for a path without access."""
    try:
        return path.is_dir()
    except OSError as error:
        raise StorageError(f"{uri}: cannot be opened ({error.strerror}): check the path and its permissions") from error


def file_uri_path(uri: str, name: str) -> LocalPath:
    """Return the path of a `file://` URI. Raises StorageError.

    Example:
        file_uri_path("file:///models/m.onnx", "the model").path  # Path("/models/m.onnx")
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise StorageError(f"{name}: is not a URL ({error}): write file:///PATH") from error
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageError(f"{name}: must have an absolute path: write file:///PATH")
    path = unquote(parts.path, errors="surrogateescape")  # as in Path, for names that are not UTF-8
    if parts.query or parts.fragment or "\0" in path:
        raise StorageError(f"{name}: must not have a query, a fragment or NUL: write %3F and %23 for ? and # in a path")
    return LocalPath(Path(path))


def pvc_uri_path(uri: str, name: str, volumes: Path) -> LocalPath:
    """Return the path of a `pvc://CLAIM/PATH` URI below the folder `volumes`. Raises StorageError."""
    from clusters.base.names import subdomain_fault  # few models are on a claim

    claim, _, rest = uri.partition("://")[2].partition("/")
    rest = unquote(rest)
    if subdomain_fault(claim) or not rest.isprintable() or "?" in uri or "#" in uri:
        raise StorageError(f"{name}: write pvc://CLAIM/PATH")
    root = volumes / claim
    if not is_folder(root, name):
        raise StorageError(f"{name}: the claim {claim!r} is not mounted: check that it exists in the model's namespace")
    root, path = real_path(root, name), real_path(root / rest.strip("/"), name)
    if not path.is_relative_to(root):
        raise StorageError(f"{name}: leads out of the claim: refused")
    return LocalPath(path, root)


def restrict_to(location: LocalPath, roots: Sequence[Path], name: str) -> LocalPath:
    """Return the path with the first of `roots` (real paths) that contains its real path as root.

    Raises OutsideFolder if none contains it, and StorageError if it does not exist.
    """
    path = real_path(location.path, name)
    for root in roots:
        if path.is_relative_to(root):
            return LocalPath(location.path, root)
    raise OutsideFolder(f"{name}: a symbolic link leads outside of the permitted folders: put the file itself there")


def real_folder(location: LocalPath, name: str) -> Path:
    """Return the real path of a folder. Raises OutsideFolder for one outside of the root, StorageError if absent."""
    folder = real_path(location.path, name)
    if location.root is not None and not folder.is_relative_to(location.root):
        raise OutsideFolder(
            f"{name}: a symbolic link leads outside of the permitted folder: put the folder itself there"
        )
    return folder


def real_path(path: Path, name: str) -> Path:
    """Return the path without links. Raises StorageError if it does not exist."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a cycle of links
        raise StorageError(f"{name}: does not exist: check the path") from error
