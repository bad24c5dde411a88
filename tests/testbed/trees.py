"""What is in a layer of a container image: paths with their content, packed to a tar that depends on nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from tests.testbed import files

DIRECTORY_MODE = 0o755
EXECUTABLE_MODE = 0o755
PLAIN_MODE = 0o644
REGULAR = tarfile.REGTYPE
EPOCH = 0
"""s; the time of every entry, so that the bytes depend on the content alone."""
REMEMBERED_SIZE = 1 << 20
"""bytes; from here on the digest of a file is remembered by its size and time: hashing 100 MB takes half a second."""


class Content(Protocol):
    """What a file of a layer holds."""

    def identity(self, digests: FileDigests) -> str:
        """A text that changes when the content does, without making the content."""
        ...

    def read(self) -> bytes:
        """The content."""
        ...


@dataclass(frozen=True, slots=True)
class Data:
    """Content that is at hand."""

    data: bytes

    def identity(self, digests: FileDigests) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def read(self) -> bytes:
        return self.data


@dataclass(frozen=True, slots=True)
class Stored:
    """Content that lies in a file of this machine."""

    path: Path

    def identity(self, digests: FileDigests) -> str:
        return digests.of(self.path)

    def read(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer; it belongs to root. `kind` is tarfile's."""

    kind: bytes
    mode: int
    content: Content | None = None
    target: str = ""

    def identity(self, digests: FileDigests) -> str:
        """A text that changes when the entry does."""
        held = self.content.identity(digests) if self.content else ""
        return f"{self.kind.decode()} {self.mode:o} {self.target} {held}"


Tree = Mapping[str, Entry]
"""Path in the image, without the leading slash, to what is there. Folders above need not be named."""


def folder(mode: int = DIRECTORY_MODE) -> Entry:
    """A folder."""
    return Entry(tarfile.DIRTYPE, mode)


def link(target: str) -> Entry:
    """A symbolic link."""
    return Entry(tarfile.SYMTYPE, 0o777, target=target)


def data(content: bytes | str, mode: int = PLAIN_MODE) -> Entry:
    """A file of this content."""
    return Entry(REGULAR, mode, Data(content.encode() if isinstance(content, str) else content))


def stored(path: Path) -> Entry:
    """A copy of a file; of its mode only whether it can be executed is kept, since umasks differ."""
    executable = path.stat().st_mode & stat.S_IXUSR
    return Entry(REGULAR, EXECUTABLE_MODE if executable else PLAIN_MODE, Stored(path))


class FileDigests:
    """SHA-256 of files; those of large ones are remembered over runs by path, size and time of change."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known: dict[str, list[int | str]] = json.loads(memory.read_text()) if memory.exists() else {}

    def of(self, path: Path) -> str:
        """`sha256:…` of the file's content."""
        seen = path.stat()
        known = self._known.get(str(path))
        if known and known[:2] == [seen.st_size, seen.st_mtime_ns]:
            return str(known[2])
        digest = digest_of(path)
        if seen.st_size >= REMEMBERED_SIZE:
            self._known[str(path)] = [seen.st_size, seen.st_mtime_ns, digest]
        return digest

    def save(self) -> None:
        """Keep what was learned for the next run."""
        files.write_with(self._memory, lambda file: file.write(json.dumps(self._known, sort_keys=True).encode()))


def tree_identity(tree: Tree, digests: FileDigests) -> str:
    """A digest over every path of the tree and what is there."""
    lines = (f"{path} {entry.identity(digests)}\n" for path, entry in sorted(tree.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_tar(tree: Tree, file: BinaryIO) -> None:
    """Write the tree as a tar: sorted, with the folders above, of root, at the epoch."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, entry in sorted(_with_parents(tree)):
            content = entry.content.read() if entry.content else b""
            info = tarfile.TarInfo(path)
            info.type, info.mode, info.linkname = entry.kind, entry.mode, entry.target
            info.size, info.mtime = len(content), EPOCH
            tar.addfile(info, io.BytesIO(content))


def _with_parents(tree: Tree) -> Iterator[tuple[str, Entry]]:
    parents = {str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."}
    yield from ((path, folder()) for path in parents - tree.keys())
    yield from tree.items()


def digest_of(path: Path) -> str:
    """`sha256:…` of the file's content."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
