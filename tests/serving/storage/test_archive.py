"""Archives: valid ones are unpacked, and any invalid entry refuses the whole archive."""

from __future__ import annotations

import gzip
import os
import random
import stat
import tarfile
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import pytest

from serving.storage.archives.archive import is_archive, unpack
from serving.storage.archives.folder_writer import FolderLimits
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from tests.serving.storage.archives import MODEL, tar, tar_entry, tar_of, zip_entry, zipped

SMALL = FolderLimits(files=5, size=10_000)
MEBIBYTE = 1 << 20


def unpacked(tmp_path: Path, name: str, content: bytes, limits: FolderLimits | None = None) -> dict[str, str]:
    (tmp_path / "archive").write_bytes(content)
    (tmp_path / "folder").mkdir()
    return unpack(tmp_path / "archive", name, tmp_path / "folder", "uri", limits)


def refused(tmp_path: Path, name: str, content: bytes, match: str = "uri: ") -> None:
    with pytest.raises(StorageError, match=match) as error:
        unpacked(tmp_path, name, content, SMALL)
    assert "\n" not in str(error.value) and str(tmp_path) not in str(error.value)
    assert all((tmp_path / "folder") in path.parents for path in tmp_path.rglob("evil*"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.tar", tar(MODEL)),
        ("m.TAR.GZ", tar(MODEL, "gz")),
        ("m.tgz", tar(MODEL, "gz")),
        ("m.tar", tar({f"./{name}": content for name, content in MODEL.items()})),
        ("m.tar", tar_of([tar_entry("./", kind=tarfile.DIRTYPE), *(tar_entry(*file) for file in MODEL.items())])),
        ("m.zip", zipped(MODEL.items())),
        ("m.zip", zipped(MODEL.items(), zipfile.ZIP_STORED)),
        ("m.zip", zipped([("sub/", b""), *MODEL.items()])),
    ],
)
def test_files_are_unpacked_with_their_digests(tmp_path: Path, name: str, content: bytes) -> None:
    assert is_archive(name)
    assert unpacked(tmp_path, name, content) == {name: of_bytes(content) for name, content in MODEL.items()}
    folder = tmp_path / "folder"
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in found} == MODEL
    assert {path.stat().st_mode & 0o111 for path in found} == {0}


@pytest.mark.parametrize("name", ["m.onnx", "tar", "m.gz", "m.zip.onnx", ""])
def test_other_names_are_no_archives(name: str) -> None:
    assert not is_archive(name)


@pytest.mark.bad_input("artifact-archives")
@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/evil", "a//evil", "..", "evil\\x", "evil\n", "evil\x1b[2J", "e" * 256, "evil/" * 40],
)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, "m.tar", tar({name: b"x"}), "file name")
    (tmp_path / "folder").rmdir()
    refused(tmp_path, "m.zip", zipped([(name, b"x")]), "file name")


@pytest.mark.bad_input("artifact-archives")
@pytest.mark.parametrize(
    ("kind", "match"),
    [(tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "link"), (tarfile.CHRTYPE, "device"), (tarfile.FIFOTYPE, "pipe"),
     (tarfile.BLKTYPE, "device"), (tarfile.GNUTYPE_SPARSE, "sparse|damaged"), (b"Z", "device")],
)  # fmt: skip
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes, match: str) -> None:
    content = tar_of([tar_entry("model.onnx", b"x"), tar_entry("evil", kind=kind, link="../../etc/passwd")])
    refused(tmp_path, "m.tar", content, match)


@pytest.mark.bad_input("artifact-archives")
@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_file_are_refused(tmp_path: Path, mode: int) -> None:
    refused(tmp_path, "m.zip", zipped([(zip_entry("evil", mode), b"/etc/passwd")]), "link or device")


def test_a_file_through_a_link_of_the_same_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    content = tar_of([tar_entry("d", kind=tarfile.SYMTYPE, link="../outside"), tar_entry("d/evil", b"x")])
    refused(tmp_path, "m.tar", content, "link")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.bad_input("artifact-archives")
def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.tar", tar_of([tar_entry("a", b"1"), tar_entry("./a", b"2")]), "twice")


def test_a_name_that_is_file_and_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.tar", tar({"a": b"1", "a/b": b"2"}), "twice")


def test_a_name_that_comes_twice_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = zipped([("a", b"1"), ("a", b"2")])
    refused(tmp_path, "m.zip", content, "twice")


@pytest.mark.bad_input("artifact-archives")
def test_too_many_files_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.tar", tar({str(number): b"" for number in range(6)}), "more than 5 files")


def test_too_many_bytes_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.tar", tar({"a": b"x" * 6000, "b": b"x" * 6000}), "more than 10000 bytes")


def test_a_zip_file_with_too_many_bytes_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.zip", zipped([("a", os.urandom(6000)), ("b", os.urandom(6000))]), "more than 10000 bytes")


@pytest.mark.bad_input("artifact-archives")
@pytest.mark.parametrize("name", ["m.tar.gz", "m.zip"])
def test_a_bomb_is_refused_before_it_has_grown(tmp_path: Path, name: str) -> None:
    bomb = tar({"a": bytes(100 * MEBIBYTE)}, "gz") if name == "m.tar.gz" else zipped([("a", bytes(100 * MEBIBYTE))])
    assert len(bomb) < MEBIBYTE
    (tmp_path / "archive").write_bytes(bomb)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="unpacked"):
        unpack(tmp_path / "archive", name, tmp_path / "folder", "uri")
    assert sum(path.stat().st_size for path in (tmp_path / "folder").iterdir()) <= 65 * MEBIBYTE


@pytest.mark.bad_input("artifact-archives")
def test_a_header_that_claims_to_be_large_is_not_read_into_memory(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("././@PaxHeader")
    entry.type, entry.size = tarfile.XHDTYPE, 60 * MEBIBYTE
    content = gzip.compress(entry.tobuf(tarfile.USTAR_FORMAT) + bytes(60 * MEBIBYTE), 1)
    tracemalloc.start()
    try:
        refused(tmp_path, "m.tar.gz", content, "header")
        assert tracemalloc.get_traced_memory()[1] < 20 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_a_size_that_leads_back_is_not_followed_for_ever(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("evil").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")  # a negative number in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    refused(tmp_path, "m.tar", bytes(header) + bytes(4096))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.zip"])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, name: str, share: float) -> None:
    files = {"a": random.Random(1).randbytes(4000), "b": random.Random(2).randbytes(4000)}  # which no zero block ends
    whole = zipped(files.items()) if name == "m.zip" else tar(files, "gz" if name.endswith("gz") else "")
    if name == "m.tar":
        whole = whole[: 4 * 512 + 2 * 4096]  # without the padding at the end
    refused(tmp_path, name, whole[: int(len(whole) * share)])


def test_an_archive_whose_end_is_not_marked_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.tar", tar({"a": b"x", "b": b"y"})[: 2 * 512], "cut off")


@pytest.mark.parametrize("content", [b"", b"x", b"no archive" * 100, bytes(1024), b"\x28\xb5\x2f\xfd" + bytes(100)])
@pytest.mark.parametrize("name", ["m.tar", "m.zip"])
def test_what_is_no_archive_or_an_empty_one_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    refused(tmp_path, name, content)


def test_rare_compressions_and_encryption_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "m.zip", zipped([("a", b"x" * 100)], zipfile.ZIP_LZMA), "unsupported compression")
    content = bytearray(zipped([("a", b"x")]))
    content[6] |= 1  # the flag in the local header, and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "folder").rmdir()
    refused(tmp_path, "m.zip", bytes(content), "encrypted")
