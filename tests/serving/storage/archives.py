"""Create archives for tests with the standard library, valid and hostile ones."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping

Entry = tuple[tarfile.TarInfo, bytes]

MODEL: Mapping[str, bytes] = {"model.onnx": b"a model" * 100, "sub/labels.txt": "ä\n".encode()}


def tar_entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Entry:
    """Return the header of an entry; `link` is the target of a link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(content)
    return entry, content


def tar_of(entries: Iterable[Entry], compression: str = "") -> bytes:
    """Return a tar file; `compression` is "gz" or empty."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def tar(files: Mapping[str, bytes], compression: str = "") -> bytes:
    """Return a tar file of plain files."""
    return tar_of((tar_entry(name, content) for name, content in files.items()), compression)


def zipped(files: Iterable[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return file.getvalue()


def zip_entry(name: str, mode: int) -> zipfile.ZipInfo:
    """Return the header of an entry with a Unix mode."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry
