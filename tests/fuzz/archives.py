"""Archives, and layers of images: whatever the bytes are, only StorageError is raised and nothing lies elsewhere."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from serving.storage.archives.archive import unpack
from serving.storage.archives.folder_writer import FolderLimits, FolderWriter
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from serving.storage.sources.oci_layer import apply_layer
from tests.fuzz.messages import mutilated
from tests.fuzz.target import Target
from tests.serving.storage.archives import MODEL, tar, tar_entry, tar_of, zipped

LIMITS: Final = FolderLimits(files=8, size=1 << 16)
KINDS: Final = ("m.tar", "m.zip", "m.tar.gz", "gzipped", "layer", "layers")
"""By the first byte: how the rest is read; "gzipped" is packed here, so that a changed tar file is one inside, too."""
_OUTSIDE: Final = "outside"
_EARLIER: Final = {"a": b"1", "d/x": b"2", "d/e/y": b"3"}


def check(data: bytes) -> None:
    """Unpack it. Raises AssertionError, or what is no StorageError, when a promise is broken."""
    kind, content = KINDS[data[0] % len(KINDS)] if data else KINDS[0], data[1:]
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        folder = place / "folder"
        folder.mkdir()
        (place / _OUTSIDE).write_bytes(b"")
        (place / "archive").write_bytes(gzip.compress(content, 1) if kind == "gzipped" else content)
        try:
            digests = _unpacked(kind, place / "archive", folder)
        except StorageError as error:
            assert "\n" not in str(error) and made not in str(error), error
            digests = None
        _check_place(place, folder)
        if digests is not None:
            assert digests == _found(folder)


def _unpacked(kind: str, archive: Path, folder: Path) -> dict[str, str]:
    if not kind.startswith("layer"):
        return unpack(archive, "m.tar.gz" if kind == "gzipped" else kind, folder, "uri", LIMITS)
    tree = FolderWriter(folder, "uri", LIMITS)
    if kind == "layers":
        for name, content in _EARLIER.items():
            tree.write(name, io.BytesIO(content).read)
    apply_layer(archive, tree, "uri")
    return tree.digests


def _check_place(place: Path, folder: Path) -> None:
    """Nothing is made outside of the folder, and in it plain files only, no more than the limits allow."""
    assert sorted(path.name for path in place.iterdir()) == ["archive", "folder", _OUTSIDE]
    assert (place / _OUTSIDE).read_bytes() == b""
    assert all(path.is_dir() or (path.is_file() and path.stat().st_nlink == 1) for path in folder.rglob("*"))
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) <= LIMITS.files + 1, files  # the one that was too many, or too large
    assert sum(path.stat().st_size for path in files) <= LIMITS.size


def _found(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): of_bytes(path.read_bytes()) for path in files}


def seeds() -> list[bytes]:
    """Inputs of each kind that are unpacked."""
    layer = tar({"models/a/b": b"x", "models/d": b"y", "models/.wh.a": b"", "bin/sh": b"z"})
    odd = tar_of([tar_entry("d", kind=tarfile.DIRTYPE), tar_entry("d/ä" + "x" * 120, b"x")])
    whole = (tar(MODEL), zipped(MODEL.items()), tar(MODEL, "gz"), odd, layer, layer)
    return [bytes([kind]) + content for kind, content in enumerate(whole)]


INPUTS = st.one_of(mutilated(st.sampled_from(seeds())), st.binary(max_size=4096))
TARGETS = [Target("archive", INPUTS, lambda: nullcontext(check), 100)]
