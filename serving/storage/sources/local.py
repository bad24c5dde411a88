"""`file://` and `pvc://`: a file or folder, read where it is. An archive is copied to the cache and unpacked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import Outside, StorageError

VOLUMES: Final = Path("/mnt/pvc")
"""Where the claims of `pvc://CLAIM/PATH` are mounted, each at its name."""


class Place(NamedTuple):  # made in a seventh of the time that a dataclass takes, at each start of a server
    """Where a file or folder lies; with a `root`, a real path, nothing outside of it is read."""

    path: Path
    root: Path | None = None


def fetch_local(place: Place, uri: str, digest: str) -> Artifact:
    """Read the file or folder at the place and verify it. Raises StorageError."""
    if is_folder(place.path, uri):
        folder = real_folder(place, uri)
        files = disk.digest_files(folder, uri)
        found = digests.of_folder(files)
        digests.check(uri, digest, found)
        # Without a promise the files are loaded from where they are: a copy of large weights would take time and room.
        return Artifact(folder, None, files if digest else {}, uri, digest=found)
    content = disk.read_file(place.path, uri, place.root)
    found = digests.of_bytes(content)
    digests.check(uri, digest, found)
    return Artifact(place.path, content, {}, uri, digest=found)


def is_folder(path: Path, uri: str) -> bool:
    """Whether there is a folder at `path`. Raises StorageError when that cannot be seen."""
    try:
        return path.is_dir()
    except OSError as error:
        raise StorageError(f"{uri}: cannot be opened ({error.strerror}): check the path and its rights") from error


def file_place(uri: str, name: str) -> Place:
    """The place that a `file://` URI names. Raises StorageError."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise StorageError(f"{name}: is no URL ({error}): write file:///PATH") from error
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageError(f"{name}: a file is named by its whole path: write file:///PATH")
    path = unquote(parts.path, errors="surrogateescape")  # of names that are not UTF-8, as Path has them
    if parts.query or parts.fragment or "\0" in path:
        raise StorageError(f"{name}: ? and # in a path are written %3F and %23, and NUL is refused")
    return Place(Path(path))


def volume_place(uri: str, name: str, volumes: Path) -> Place:
    """The place that a `pvc://CLAIM/PATH` URI names, below `volumes`. Raises StorageError."""
    from clusters.base.names import subdomain_fault  # few models lie on a claim

    claim, _, rest = uri.partition("://")[2].partition("/")
    rest = unquote(rest)
    if subdomain_fault(claim) or not rest.isprintable() or "?" in uri or "#" in uri:
        raise StorageError(f"{name}: write pvc://CLAIM/PATH")
    root = volumes / claim
    if not is_folder(root, name):
        raise StorageError(f"{name}: the claim {claim!r} is not mounted: check that it exists in the model's namespace")
    root, path = real_path(root, name), real_path(root / rest.strip("/"), name)
    if not path.is_relative_to(root):
        raise StorageError(f"{name}: leads outside of the claim: refused")
    return Place(path, root)


def place_below(place: Place, roots: Sequence[Path], name: str) -> Place:
    """Return the place bounded by the first of `roots`, real paths, that its real path is below.

    Raises Outside when it is below none of them, and StorageError when nothing is there.
    """
    path = real_path(place.path, name)
    for root in roots:
        if path.is_relative_to(root):
            return Place(place.path, root)
    raise Outside(f"{name}: a symbolic link leads outside of the permitted folders: put the file itself there")


def real_folder(place: Place, name: str) -> Path:
    """Return the real path of the folder at the place. Raises Outside: it is not below the root; StorageError."""
    folder = real_path(place.path, name)
    if place.root is not None and not folder.is_relative_to(place.root):
        raise Outside(f"{name}: a symbolic link leads outside of the permitted folder: put the folder itself there")
    return folder


def real_path(path: Path, name: str) -> Path:
    """Return the path without links. Raises StorageError when nothing is there."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        raise StorageError(f"{name}: is not there: check the path") from error
