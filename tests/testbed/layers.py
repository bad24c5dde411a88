"""Layers of container images: a tree of entries becomes one tar, the same input always the same bytes.

Below `oci`, which joins layers to images. A layer is found again by what went into it, not by when: a change of our
code remakes the layer of our code alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from tests.testbed.errors import TestbedError

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
        digest = _digest(path)
        if seen.st_size >= REMEMBERED_SIZE:
            self._known[str(path)] = [seen.st_size, seen.st_mtime_ns, digest]
        return digest

    def save(self) -> None:
        """Keep what was learned for the next run."""
        write_file(self._memory, lambda file: file.write(json.dumps(self._known, sort_keys=True).encode()))


@dataclass(frozen=True, slots=True)
class Packing:
    """How a layer lies in an archive: OCI's word for it, and the command that makes it of a tar on its stdin."""

    media_type: str
    command: tuple[str, ...] = ()


PLAIN = Packing("application/vnd.oci.image.layer.v1.tar")
ZSTD = Packing(f"{PLAIN.media_type}+zstd", ("zstd", "-1", "--quiet", "--stdout"))
"""containerd takes it in in 60 % of the time of PLAIN and with 70 % of its processor time; gzip needs 140 %."""


def packing() -> Packing:
    """The best one that this machine can make."""
    return ZSTD if shutil.which(ZSTD.command[0]) else PLAIN


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as it lies in the store: digest of its tar, digest and size in bytes of the packed tar, the file of it."""

    diff_id: str
    digest: str
    size: int
    media_type: str
    path: Path


class LayerStore:
    """A folder of layers, each made once per content."""

    def __init__(self, root: Path, packed: Packing | None = None) -> None:
        self._root = root
        self._packing = packed or packing()
        root.mkdir(parents=True, exist_ok=True)
        self._digests = FileDigests(root / "digests.json")
        self._used: set[str] = set()

    def layer(self, tree: Tree) -> Layer:
        """The layer of this tree; made, if it was not before."""
        kind = self._packing.media_type.rpartition("+")[2] if self._packing.command else "tar"
        record = self._root / f"{tree_identity(tree, self._digests)}-{kind}.json"
        if not record.exists():
            self._make(tree, record)
        made = json.loads(record.read_text())
        blob = self._root / f"{made['digest'].removeprefix('sha256:')}.blob"
        self._used |= {record.name, blob.name}
        return Layer(**made, size=blob.stat().st_size, media_type=self._packing.media_type, path=blob)

    def prune(self) -> None:
        """Remove the layers that were not asked for in this run, and keep the digests learned in it."""
        self._digests.save()
        keep = self._used | {"digests.json"}
        for path in self._root.iterdir():
            if path.name not in keep:
                path.unlink()

    def _make(self, tree: Tree, record: Path) -> None:
        plain = self._root / f"making-{os.getpid()}.tar"
        with plain.open("wb") as file:
            write_tar(tree, file)
        diff_id, packed = _digest(plain), self._pack(plain)
        digest = _digest(packed)
        packed.replace(self._root / f"{digest.removeprefix('sha256:')}.blob")
        write_file(record, lambda file: file.write(json.dumps({"diff_id": diff_id, "digest": digest}).encode()))

    def _pack(self, plain: Path) -> Path:
        if not self._packing.command:
            return plain
        packed = plain.with_suffix(".packed")
        with plain.open("rb") as source, packed.open("wb") as target:
            try:
                subprocess.run(self._packing.command, stdin=source, stdout=target, check=True)
            except (OSError, subprocess.CalledProcessError) as exc:
                raise TestbedError(f"{self._packing.command[0]} could not pack a layer: {exc}") from exc
        plain.unlink()
        return packed


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


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


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that nobody ever sees half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        write(file)
    beside.replace(path)
