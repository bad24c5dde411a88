"""Where downloads lie: a folder of the user's own, in which a file appears whole or not at all.

CACHE/sha256/HEX/FILE     downloaded and found to have this digest; it is verified again before each use
CACHE/uri/HEX/FILE        the last download of the URI with this SHA-256, for which no digest was promised
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final
from urllib.parse import unquote

from serving.storage import digest as digests
from serving.storage import disk
from serving.storage.addresses import parse, shown
from serving.storage.artifact import Artifact
from serving.storage.errors import StorageError

log = logging.getLogger(__name__)

UNNAMED: Final = "model"  # file name of a download whose URI has none
_UNFINISHED: Final = ".download-"
_OTHERS_MAY_WRITE: Final = 0o022


def fetch_http(uri: str, digest: str, cache: Path, allow_hosts: frozenset[str]) -> Artifact:
    """The file at a http(s) URI, from the cache when its digest is known and intact there. Raises StorageError."""
    place = _place(uri, digest, cache)
    if digest and place.is_file():
        try:
            return _read(place, uri, digest)
        except StorageError as error:  # that it is there says nothing
            log.warning("downloading anew what the cache has: %s", error)
    _download(uri, digest, place, allow_hosts)
    return _read(place, uri, digest)


def _read(place: Path, uri: str, digest: str) -> Artifact:
    name = shown(uri)
    content = disk.read_file(place, name)
    if digest:
        digests.check(name, digest, digests.of_bytes(content))
    return Artifact(place, content, {}, name)


def _download(uri: str, digest: str, place: Path, allow_hosts: frozenset[str]) -> None:
    from serving.storage.http import Downloader  # ssl and http.client, which local files do not need

    with _writing(place) as file:
        found = Downloader(allow_hosts).download(uri, file)
        digests.check(shown(uri), digest, found)


def _place(uri: str, digest: str, cache: Path) -> Path:
    """Where the file lies or is to lie; makes the folder."""
    name = PurePosixPath(unquote(parse(uri).request_target.partition("?")[0])).name
    key = ("sha256", digest.removeprefix(digests.PREFIX)) if digest else ("uri", _hex(uri))
    folder = cache.joinpath(*key)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = cache.stat()
    except OSError as error:
        raise StorageError(f"the cache {cache} cannot be used ({error.strerror}): choose another folder") from error
    if about.st_uid != os.getuid() or about.st_mode & _OTHERS_MAY_WRITE:
        raise StorageError(f"the cache {cache} can be written by other users: choose another folder")
    return folder / (name if _is_plain(name) else UNNAMED)


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and name.isprintable() and not name.startswith(_UNFINISHED)


def _hex(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[BinaryIO]:
    """A file that is renamed to `place` at the end of the block; after an error nothing is left.

    It need not outlive a crash of the machine: with a digest it is verified at each use, without one fetched anew.
    """
    try:
        fd, temporary = tempfile.mkstemp(dir=place.parent, prefix=_UNFINISHED)
    except OSError as error:
        raise StorageError(f"the cache {place.parent} cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
        Path(temporary).replace(place)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        if isinstance(error, OSError):
            raise StorageError(f"the cache {place.parent} cannot be written ({error.strerror})") from error
        raise
