"""Digests of artifacts.

file      `sha256:` + SHA-256 of its bytes
folder    `sha256:` + SHA-256 of the lines `<sha256>  <relative path>\\n` sorted by path, as `sha256sum` prints them
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from io import FileIO
from typing import Final

from serving.storage.base.errors import StorageError

PREFIX: Final = "sha256:"
_FORM: Final = re.compile(r"sha256:[0-9a-f]{64}")


def of_bytes(content: bytes) -> str:
    """Return the digest of a file with this content."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def of_open_file(file: FileIO) -> str:
    """Return the digest of the rest of an open file. Raises OSError."""
    return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()


def of_folder(files: Mapping[str, str]) -> str:
    """Return the digest of a folder; `files` maps the relative path (POSIX) of each file to its digest."""
    return of_bytes(folder_listing(files))


def folder_listing(files: Mapping[str, str]) -> bytes:
    """Return the lines whose SHA-256 is the digest of a folder."""
    # Sorted as bytes, as `LC_ALL=C sort` does: the order is the same in every locale.
    paths = sorted(files, key=_as_bytes)
    return b"".join(files[path].removeprefix(PREFIX).encode() + b"  " + _as_bytes(path) + b"\n" for path in paths)


def _as_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def check_form(uri: str, digest: str) -> None:
    """Raise StorageError for a text that is neither a digest nor empty."""
    if digest and not _FORM.fullmatch(digest):
        raise StorageError(
            f"{uri}: digest {digest[:80]!r} is not a digest: write sha256: and 64 hexadecimal digits in lower case"
        )


def check(uri: str, expected: str, found: str) -> None:
    """Raise StorageError for an artifact whose digest is not the expected one; "" accepts every digest."""
    if expected and expected != found:
        raise StorageError(
            f"{uri}: digest is {found} but {expected} was expected: the artifact was changed or damaged; "
            "upload it again, or deploy with its present digest"
        )
