"""Digests of artifacts (pure, but for reading an open file).

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
    """The digest of a file with this content."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def of_open_file(file: FileIO) -> str:
    """The digest of what is left to read of `file`."""
    return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()


def of_folder(files: Mapping[str, str]) -> str:
    """The digest of a folder; `files` maps each file's relative path (POSIX) to its own digest."""
    # Sorted as bytes: the order of `LC_ALL=C sort`, the same in every locale.
    paths = sorted(files, key=_as_bytes)
    lines = (files[path].removeprefix(PREFIX).encode() + b"  " + _as_bytes(path) + b"\n" for path in paths)
    return of_bytes(b"".join(lines))


def _as_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def check_form(uri: str, digest: str) -> None:
    """Refuse what is no digest ("" is: none was promised). Raises StorageError."""
    if digest and not _FORM.fullmatch(digest):
        raise StorageError(f"{uri}: digest {digest[:80]!r} is not sha256: and 64 hexadecimal digits in lower case")


def check(uri: str, expected: str, found: str) -> None:
    """Refuse an artifact whose digest is not the promised one ("" promises nothing). Raises StorageError."""
    if expected and expected != found:
        raise StorageError(
            f"{uri}: digest is {found} but {expected} was expected: the artifact was changed or damaged; "
            "upload it again, or deploy with its present digest"
        )
